// A layer: a function with parameters, from named tensors to named tensors. It does not depend on how the run is parallelised.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/option_texts.h"
#include "zt/base/words.h"
#include "zt/comm/comm.h"
#include "zt/comm/mesh.h"
#include "zt/model/kv_cache.h"
#include "zt/model/param.h"
#include "zt/model/tokens.h"
#include "zt/random/rng.h"

namespace zt {

enum class Mode : uint8_t { train, eval, generate };
inline constexpr std::array kModes{Mode::train, Mode::eval, Mode::generate};
constexpr auto words_of(Mode) {
  return std::array{"train", "eval", "generate"};
}
inline Mode parse_mode(const std::string& name) {
  return parse_word<Mode>(name, "unknown mode");
}
enum class Per : uint8_t { token, sample };  // a loss term is a sum over tokens or samples, and is divided by their number
constexpr auto words_of(Per) {
  return std::array{"token", "sample"};
}
Per parse_per(const std::string& name);  // throws Misuse for another name

struct Output {
  std::string name = "h";
  bool differentiable = true;
  // The mesh axis over whose ranks its tokens, dim 1, are cut by share_of in training and evaluation; empty: each rank has all.
  std::string cut_over = {};
};

// A term of the objective. Terms of one name, of several layers, are added.
struct LossInfo {
  std::string name = "loss";
  Per per = Per::token;
  // Of a term per sample: that of a sample is the sum of the terms of its tokens. Where tokens are cut over ranks, other terms
  // per sample are refused: no rank could compute them.
  bool adds_over_tokens = false;
  bool operator==(const LossInfo&) const = default;
};

// Numbers that the layer adds up for people and for its own update, such as the tokens per expert: a vector of `size` sums over
// the micro-batches and ranks of a step.
struct StatInfo {
  std::string name;
  int64_t size = 1;
  bool operator==(const StatInfo&) const = default;
};

// Which tokens of a sequence a layer reads for its outputs of one of them, in mode generate.
enum class TokenScope : uint8_t {
  separate,  // only this one: a row of the outputs depends on the same row of the inputs and of the batch's fields
  cached,    // also earlier ones of the same sequence, whose keys and values Context::kv_cache() has
  all,       // any of them
};

// The keys and values that a rank keeps of a token at a position.
struct KvShape {
  int64_t heads = 0;
  int64_t head_dim = 0;
  bool operator==(const KvShape&) const = default;
};

// The names of inputs and outputs, and the loss terms and statistics that the layer adds. An input reads the output of that name
// of the latest earlier position that has one.
struct Io {
  std::vector<std::string> inputs{"h"};
  std::vector<Output> outputs{Output{}};
  std::vector<LossInfo> losses = {};
  std::vector<StatInfo> stats = {};
  // By input: the axis over which the tokens of the value must be cut (Output::cut_over). The others must be whole.
  std::map<std::string, std::string> cut_inputs = {};
};

// The numbers by which a batch's loss terms are divided: this rank's part. The action COUNT sums them over the ranks.
struct Counts {
  int64_t tokens = 0;
  int64_t samples = 0;  // of a layer: zt/model/sample_count.h says what 0 means
};

// How the bytes that a rank sends reach the others.
enum class Pattern : uint8_t {
  collective,  // as in an all_gather, a reduce_scatter or an all_reduce, around the ranks
  all_to_all,  // equal parts go to each rank
};
// The bytes that a rank sends along an axis.
struct SentBytes {
  int64_t collective = 0, all_to_all = 0;
};

// The services of the executor for a running layer. There is one Context per forward of a (position, micro-batch). It lives until
// the backward of that forward is done, so the backward may use it, too.
class Context {
 public:
  virtual ~Context();

  Mode mode = Mode::train;
  bool recompute = false;  // true in the second forward of a checkpointed layer, which must have no side effects
  bool adapters = true;    // false: layers compute without their adapters (Param::is_adapter)
  int64_t step = 0;
  int position = 0;
  int micro_batch = 0;

  // Returns the values of one of the layer's parameters: what this rank holds of it, an autograd leaf. They are current within
  // forward and within the backward of this forward, which may keep the tensor until then: in between, the memory of a sharded
  // parameter may hold other values. Throws Misuse, with both names, if the layer's params() does not list the parameter.
  virtual const at::Tensor& param(const Param& param) = 0;

  // Returns a field of this micro-batch, [samples, ...]: "tokens", "labels", "positions", "segments", "sample".
  virtual at::Tensor batch(const std::string& name) = 0;  // throws Misuse, with the names of the fields, if there is none
  virtual bool has_batch(const std::string& name) const = 0;
  // Returns the index of this micro-batch's first sample in the global batch. Use it as the row of random numbers.
  virtual int64_t first_sample() const = 0;
  // Returns the random stream of (seed, purpose, position, step). It is the same in a recompute and on every mesh.
  virtual Philox rng(Purpose purpose) const = 0;
  // Return this rank's communicators along a mesh axis: for tensors on the device, and for counts, in host memory.
  virtual Communicator& comm(const std::string& axis) = 0;
  virtual Communicator& control(const std::string& axis) { return comm(axis); }
  // Returns this rank's index along a mesh axis, on which its share of parameters and values depends. A plan runs the layer as
  // one rank after the other, without their communicators: comm(axis).rank() is always that of this process.
  virtual int rank_along(const std::string& axis) { return comm(axis).rank(); }
  // Returns how many ranks share the layer's work along a mesh axis: 1 along the axis that cuts tokens where samples are whole,
  // as in mode generate.
  virtual int ranks_along(const std::string& axis) { return comm(axis).size(); }

  // Returns which tokens of the samples this rank has in this micro-batch: all, unless a layer cuts them
  // (LayerExtras::token_cut). Their total is 0 if no field of the batch has tokens.
  virtual const TokenPlaces& tokens();

  // Returns where keys and values of earlier tokens are, in a run of mode generate over rows of several sequences
  // (Trainer::infer); null in other runs. Only a layer of the scope `cached` may use it.
  virtual KvCache* kv_cache() { return nullptr; }

  // Adds to a term of the objective that io() declares. `sum` is a scalar, summed over the micro-batch's tokens or samples. The
  // layer's backward starts from it as well as from the outputs. A term to which nothing is added counts as 0.
  virtual void loss(const std::string& name, at::Tensor sum, Per per) = 0;

  // Adds to a statistic that io() declares. `values`: [size], of any dtype; sums are in float64. A recompute adds nothing.
  virtual void stat(const std::string& /*name*/, const at::Tensor& /*values*/) {}

  // Notes that this rank sends `bytes` to other ranks along `axis`. Plans show them, simulations compute their time, and the
  // statistic `bytes_sent`, if io() declares it, counts them. Call it wherever the layer sends: also in a backward, in a
  // recompute and on device meta.
  virtual void sent(const std::string& /*axis*/, int64_t /*bytes*/, Pattern /*pattern*/) {}

  // The place in the unit's flat gradient buffer where a layer's backward writes or adds the gradient of a parameter itself.
  // `view` has the parameter's shape and is valid until that backward ends. It is undefined if no gradient is kept (frozen
  // parameter, evaluation): then do nothing. If `first` is true, the view holds no sum yet: overwrite it (a GEMM with beta = 0).
  struct Sink {
    at::Tensor view;
    bool first = true;
    // Adds `sum`, of the view's shape, to the view, or overwrites the view if `first` is true. Rounds once, to the view's dtype.
    // Does nothing if the view is undefined.
    void add(const at::Tensor& sum) const;
  };
  using SinkFn = std::function<Sink()>;
  // Returns a function for the layer's backward that gives the Sink of `param`. The backward must then return no gradient of
  // `param` to autograd. Throws Misuse as `param`.
  virtual SinkFn grad_sink(const Param& param) = 0;

  // Keeps what the backward of this forward uses, such as a Context of a layer within this one, as long as the Context lives.
  void own(std::shared_ptr<const void> object) { owned_.push_back(std::move(object)); }

  // Runs the computation of a weight gradient: at once, or later if the program splits the backward in two.
  virtual void defer(std::function<void()> weight_gradient) = 0;

 private:
  std::vector<std::shared_ptr<const void>> owned_;
};

// While it lives, Param::get() on this thread reads from `context`. Whoever calls a forward makes one around it: the executor,
// and a layer that runs others with a Context of its own.
class RunningContext {
 public:
  explicit RunningContext(Context& context);
  ~RunningContext();
  RunningContext(const RunningContext&) = delete;
  RunningContext& operator=(const RunningContext&) = delete;

 private:
  Context* before_;
};

// Returns a field of a micro-batch by its name, or an undefined tensor if it has none.
using BatchField = std::function<at::Tensor(const std::string&)>;

class Layer : public MadeFromOptions {
 public:
  virtual ~Layer();

  // Computes the outputs. `in` has one tensor per input of io(), the result one per output, in that order. Grad mode is on if a
  // graph is needed. Several trainers may run the layer, so it keeps nothing from one call to the next.
  virtual std::vector<at::Tensor> forward(at::TensorList in, Context& context) = 0;

  // Returns the parameters, with names local to the layer ("weight"): the model adds the layer's name. Must always return the
  // same.
  virtual Params params() const { return {}; }
  virtual Io io() const { return {}; }
  // Returns the mesh axes along which forward and backward communicate.
  virtual std::vector<std::string> axes() const { return {}; }
  // Returns the number of valid tokens and of samples of a micro-batch, if the layer adds a loss. A batch's number is the sum
  // over its micro-batches.
  virtual Counts count(const BatchField& batch) const;
  // Returns which tokens the outputs of one token depend on.
  virtual TokenScope token_scope() const { return TokenScope::all; }
  // Returns the keys and values that the rank `coord` keeps, of a layer of the scope `cached`.
  virtual std::optional<KvShape> kv_shape(const Coord& /*coord*/) const { return {}; }
  // Returns a word for reports: "linear".
  virtual std::string kind() const = 0;
};

// A layer that moves tensors between ranks. It has no parameters and does without autograd, so that its communication may go on
// while the executor runs actions that do not depend on it. If io() declares the statistic `seconds` of size 2, the executor adds
// the seconds that the rank's thread spends in the layer's starts and in waiting for their works, and 1 per rank.
class ExchangeLayer : public Layer {
 public:
  struct Exchanged {
    std::vector<at::Tensor> tensors;
    Work work;  // the tensors have their values after work.wait()
  };
  // Starts the backward: returns one gradient per input from one per output. Undefined gradients are zeros. Called at most once.
  using Backward = std::function<Exchanged(at::TensorList gradients)>;
  struct Started {
    Exchanged outputs;
    Backward backward;
  };

  // Starts the forward. `in` has one tensor per input of io(); grad mode is off. The tensors of `in` do not change before the
  // work is done. On device meta it computes shapes only.
  virtual Started start(at::TensorList in, Context& context) = 0;

  // Takes part in a forward on a rank whose step has failed, so that no other rank waits for it. `in`: as in `start`, but a
  // missing input is an empty tensor [0] of the parameters' dtype. Returns what `start` returns, with any numbers. Returns no
  // tensors if the other ranks learn of the failure in their `start`, which then throws PeerFailed. Returns nullopt if it cannot
  // take part.
  virtual std::optional<Started> join(at::TensorList /*in*/, Context& /*context*/) { return std::nullopt; }

  // Returns whether all ranks must give micro-batches of the same shapes. COUNT refuses others then.
  virtual bool needs_equal_batches() const { return false; }

  // Runs `start` and waits.
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) final;
  Params params() const final { return {}; }
};

ZT_OBJECT(Layer)

}  // namespace zt
