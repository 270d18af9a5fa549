#include "memory.h"

#include <functional>
#include <numeric>

#include "zt/base/options.h"
#include "zt/model/optimizer.h"

namespace zt::zero {

namespace {

struct MemoryArguments {
  int64_t params = 0, ranks = 1, live = 0, bucket = 0, activations = 0;
  int stage = 0;
  Value precision = "fp32";
  std::optional<int64_t> states;
  std::shared_ptr<Optimizer> optimizer;
  bool node_shared = false;
};

// Returns the numbers that the optimizer keeps per element of a large matrix, which most parameters are.
int64_t states_of_matrix(const Optimizer& optimizer) {
  ParamInfo matrix;
  matrix.name = "weight";
  matrix.shape = {4096, 4096};
  int64_t numbers = 0;
  for (const StateInfo& state : optimizer.states_of(matrix))
    numbers += std::accumulate(state.shape.begin(), state.shape.end(), int64_t{1}, std::multiplies<>());
  return numbers / matrix.numel();
}

}  // namespace

MemoryOptions parse_memory_options(const Value& options) {
  static const auto schema =
      Schema<MemoryArguments>("zero.memory")
          .required("params", &MemoryArguments::params, "number of parameters of the model", at_least(0))
          .optional("ranks", &MemoryArguments::ranks, "number of ranks over which the model is sharded", at_least(1))
          .optional("stage", &MemoryArguments::stage, "what is sharded, as in zero.shard", Check<int>(between(0, 3)))
          .optional("precision", &MemoryArguments::precision, "as in zt.program")
          .optional("states", &MemoryArguments::states, "numbers that the optimizer keeps per parameter; unset: 2, as for Adam",
                    at_least(0))
          .optional("optimizer", &MemoryArguments::optimizer, "the optimizer itself, instead of states")
          .optional("node_shared", &MemoryArguments::node_shared, "the ranks are on one machine and hold the parameters once")
          .optional("live", &MemoryArguments::live,
                    "stage 3: largest number of parameter elements that are whole at the same time", at_least(0))
          .optional("bucket", &MemoryArguments::bucket,
                    "stages 2 and 3: largest number of gradient elements that are whole at the same time", at_least(0))
          .optional("activations", &MemoryArguments::activations, "bytes of activations", at_least(0));
  const MemoryArguments given = schema.parse(options);
  if (given.states && given.optimizer)
    misuse("zero.memory: states and optimizer exclude each other, both give the size of the optimizer state: leave one out");
  MemoryOptions parsed{.params = given.params,
                       .ranks = given.ranks,
                       .stage = given.stage,
                       .precision = parse_precision(given.precision, schema.name() + ".precision"),
                       .node_shared = given.node_shared,
                       .live = given.live,
                       .bucket = given.bucket,
                       .activations = given.activations};
  if (given.states) parsed.states = *given.states;
  if (given.optimizer) parsed.states = states_of_matrix(*given.optimizer);
  return parsed;
}

MemoryEstimate memory_of(const MemoryOptions& o) {
  const auto bytes = [](at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); };
  const int64_t part = (o.params + o.ranks - 1) / o.ranks;
  const auto held = [&](bool is_sharded) { return is_sharded ? part : o.params; };
  const int64_t params = bytes(o.precision.params), grads = bytes(o.precision.grads), exact = bytes(o.precision.master());
  MemoryEstimate memory;
  memory.parameters = params * held(o.stage >= 3 || (o.node_shared && o.stage >= 1));
  memory.gradients = grads * held(o.stage >= 2);
  memory.master = o.precision.is_mixed() ? exact * held(o.stage >= 1) : 0;
  memory.optimizer = o.states * exact * held(o.stage >= 1);
  if (o.stage >= 3 && !o.node_shared) memory.buckets += params * o.live;
  if (o.stage >= 2) memory.buckets += grads * o.bucket;
  memory.activations = o.activations;
  return memory;
}

}  // namespace zt::zero
