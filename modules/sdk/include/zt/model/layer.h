// A layer: a function from named values to named values with parameters. It knows nothing of parallelism.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/comm/comm.h"
#include "zt/model/param.h"
#include "zt/random/rng.h"

namespace zt {

enum class Mode : uint8_t { train, eval, generate };
inline constexpr std::array kModes{Mode::train, Mode::eval, Mode::generate};
// "train", "eval", "generate": the names of kModes, in their order.
const std::vector<std::string>& mode_names();
const std::string& mode_name(Mode mode);
Mode parse_mode(const std::string& name);    // Misuse with the nearest name if there is none
enum class Per : uint8_t { token, sample };  // what a loss term is a sum over, so what it is divided by

struct Output {
  std::string name = "h";
  bool differentiable = true;
};

// Names of inputs and outputs. An input takes the latest earlier output of that name.
struct Io {
  std::vector<std::string> inputs{"h"};
  std::vector<Output> outputs{Output{}};
};

// How many elements a batch's loss is divided by, on this rank. Summed over the ranks by the action COUNT.
struct Counts {
  int64_t tokens = 0;
  int64_t samples = 0;
};

// What a layer may ask for while it runs. One per forward of a (position, micro-batch); it lives until that one's backward is
// done, so a layer's own backward may use it.
class Context {
 public:
  virtual ~Context();

  Mode mode = Mode::train;
  bool recompute = false;  // this is the second forward of a checkpointed layer: no side effects
  int64_t step = 0;
  int position = 0;
  int micro_batch = 0;

  // A field of this micro-batch, [samples, ...]: "tokens", "labels", "positions", "segments", "sample".
  virtual at::Tensor batch(const std::string& name) = 0;  // Misuse, listing the fields, if there is none
  virtual bool has_batch(const std::string& name) const = 0;
  // Place in the global batch of this micro-batch's first sample: the row for random numbers.
  virtual int64_t first_sample() const = 0;
  // The stream of (seed, purpose, position, step): the same in a recompute and on any mesh.
  virtual Philox rng(Purpose purpose) const = 0;
  virtual Communicator& comm(const std::string& axis) = 0;

  // Adds a term to the objective: `sum` is a scalar, a sum over tokens or samples; it is a further root of the backward.
  virtual void loss(const std::string& name, at::Tensor sum, Per per) = 0;

  // Where a layer may accumulate the gradient of `param` itself, in its own backward: a view with the parameter's shape
  // in the unit's flat gradient buffer, valid until that backward ends. `first` says that the view holds no sum yet and is
  // to be overwritten (a GEMM with beta = 0). Undefined view when gradients are not kept (frozen, evaluation): then do nothing.
  // A sunk parameter returns no gradient to autograd.
  struct Sink {
    at::Tensor view;
    bool first = true;
    // Adds a sum of the view's shape, or writes it if the view holds none yet. Rounds once, to the view's dtype. Does nothing
    // if the view is undefined.
    void add(const at::Tensor& sum) const;
  };
  virtual std::function<Sink()> grad_sink(const Param& param) = 0;

  // Queues the weight gradient for the action W, where the program splits the backward; runs at once otherwise.
  virtual void defer(std::function<void()> weight_gradient) = 0;
};

class Layer {
 public:
  virtual ~Layer();

  // in: one tensor an input of io(), in that order; returns one an output. Called with grad mode on when a graph is
  // wanted. Uses `Param::get()`, never a kept tensor.
  virtual std::vector<at::Tensor> forward(at::TensorList in, Context& context) = 0;

  // Its parameters, with names local to the layer ("weight"); the model prefixes them. Constant over its life.
  virtual std::vector<std::shared_ptr<Param>> params() const { return {}; }
  virtual Io io() const { return {}; }
  // Mesh axes whose collectives forward and backward call.
  virtual std::vector<std::string> axes() const { return {}; }
  // True if backward puts weight gradients into Context::defer.
  virtual bool splits_backward() const { return false; }
  // For a layer that adds a loss: the valid tokens and the samples of the whole local batch.
  // `batch(name)` gives a field of the whole local batch, undefined if there is none.
  virtual Counts count(const std::function<at::Tensor(const std::string&)>& batch) const;
  // A word for reports: "linear".
  virtual std::string kind() const = 0;
};

ZT_OBJECT(Layer)

}  // namespace zt
