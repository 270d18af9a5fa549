// What few layers need besides being a function, such as the routers of experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zt/model/layer.h"

namespace zt {

// Describes a tensor that a layer itself changes, such as the bias of a router. Each trainer has its own values, which are equal
// on all ranks that run the layer. Checkpoints save them under the layer's name and this one.
struct LayerBuffer {
  std::string name;
  at::Tensor initial;  // float32 or float64, in host memory: the values at first, and the shape and dtype
};

// The values of a layer's buffers, by name.
using LayerBuffers = std::map<std::string, at::Tensor>;

// The statistics of a step by the names of io().stats, each float64 [size]: sums over all micro-batches and ranks.
using Stats = std::map<std::string, at::Tensor>;

// A layer that has some of this derives from this class, too.
class LayerExtras {
 public:
  virtual ~LayerExtras();
  // Describes the tensors that the layer changes itself. Must always return the same.
  virtual std::vector<LayerBuffer> buffers() const { return {}; }
  // Returns whether `update` is called after each training step that updated the parameters (action UPDATE). It is not called if
  // all buffers of the layer are frozen. If some are, these get their values back after it.
  virtual bool has_update() const { return false; }
  // Changes the layer's buffers of one trainer. `stats`: those of this layer. Must do the same on all ranks.
  virtual void update(const Stats& /*stats*/, const LayerBuffers& /*buffers*/) {}
  // Returns what the result of a step shows of the statistics: by name one number (a tensor without dims) or a list. `sums`: the
  // statistics of this layer. Called once per step, on every rank. By default the sums.
  virtual Stats report(const Stats& sums) const { return sums; }
  // Returns those of axes() whose ranks share the layer's work on the same samples, as in tensor parallelism. Parameters of the
  // model that state no placement on them are replicated_same_data there.
  virtual std::vector<std::string> tensor_axes() const { return {}; }
  // Returns how the tokens of samples are cut, if the layer can work on some of them. All layers that state a cut state the same.
  // The layers of the model get these fields of a batch cut, in training and evaluation, and `positions` if the batch has none.
  // Parameters that state no placement on its axis are replicated_other_data there.
  virtual std::optional<TokenCut> token_cut() const { return {}; }
  // Returns the axis over whose ranks the classes of the layer's logits are cut by share_of. With a cache that names it
  // (KvCache::class_axis), the output of a rank has those of its own classes only. Empty: the output always has all.
  virtual std::string class_axis() const { return {}; }
  // Returns whether the layer needs all tokens of a sample. A model whose tokens are cut refuses such a layer.
  virtual bool needs_whole_samples() const { return false; }
  // Returns those of axes() over which the layer sums what it must know of the whole batch. The verifier refuses a program whose
  // ranks see other data along another axis, too.
  virtual std::vector<std::string> batch_axes() const { return {}; }
  // Throws Misuse if the layer cannot take fields of a micro-batch, such as tokens that it does not know. The fields have whole
  // samples. Called before a step's first communication: in a layer that communicates, an error in the forward would leave other
  // ranks waiting.
  virtual void check_batch(const BatchField& /*batch*/, Mode /*mode*/) const {}
  // Throws Misuse if the layer cannot read its inputs from these layers, in the order of io().inputs. Called when a model is
  // made.
  virtual void check_sources(const std::vector<const Layer*>& /*sources*/) const {}
  // Returns a sentence about what plans assume of the layer, such as the rows that an expert gets; empty: nothing.
  virtual std::string assumption() const { return {}; }
  // Frees what only a garbage collector still holds of the layer's forwards. Called before activations leave the memory.
  virtual void drop_garbage() {}
  // Returns a sentence about each promise about numbers that the layer's options give up, such as that losses do not depend on
  // the size of micro-batches; for reports.
  virtual std::vector<std::string> gives_up() const { return {}; }
};

// Return what the layer derives from LayerExtras, or what a layer without it has.
LayerExtras& extras_of(Layer& layer);
const LayerExtras& extras_of(const Layer& layer);

// What such layers use of a Context besides its services for all.
class ContextExtras {
 public:
  virtual ~ContextExtras();
  // Returns one of the layer's buffers, for reading. Throws Misuse if its buffers() does not list it.
  virtual const at::Tensor& buffer(const std::string& name) = 0;
  // Shows values that must be finite, [samples, ...]. Does nothing, except when a step that was not finite is repeated to find
  // out where that began.
  virtual void watch(const std::string& name, const at::Tensor& values) = 0;
  // In the first forward, keeps tensors for a recompute: choices that must not be made twice, such as the experts of each token.
  // In a recompute `kept` returns them; else it is empty.
  virtual void keep(std::vector<at::Tensor> choices) = 0;
  virtual std::vector<at::Tensor> kept() const = 0;
};

// Returns the extras of a running layer's context. Throws Misuse for a layer that runs as one of several experts.
ContextExtras& extras_of(Context& context);

}  // namespace zt
