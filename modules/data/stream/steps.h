// Which samples a step reads, as a pure function of the step. The global batch of a step is the same for any number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zt/base/stateful.h"
#include "zt/base/value.h"
#include "zt/comm/mesh.h"

namespace zt::data {

// Returns the text of an option's value. Numbers that are equal have equal texts, whatever their types.
std::string text_of(const Value& value);

struct StreamOptions {
  int64_t batch = 1;                // samples per global batch
  int rank = 0, ranks = 1;          // index among the ranks that share the batch, and the number of these ranks
  std::shared_ptr<Axis> axis = {};  // of these ranks; null for one rank
  int64_t micro_batches = 1;        // micro-batches that each rank's samples must divide into
  int64_t seed = 0;                 // of the order
  bool shuffle = true;              // true: each epoch has its own order; false: the order of the source
  Value::Table order = {};          // what defines the samples and their order besides seed and shuffle: plain values by option
  bool takes_other_order = false;   // restore accepts states of streams with another order
};

// A run reads samples by their numbers g = 0, 1, ...: step s reads the numbers s * batch to (s + 1) * batch - 1. Rank r of W
// reads the r-th contiguous part of each batch.
//
// The state is the next step, the number of samples consumed before it, and the options that decide the order of samples. A
// stream with another batch size or another number of ranks continues with the next sample: its batch of the saved step begins
// there, and it has no earlier steps. A state with another order is refused, unless the caller allows it. The stream then
// continues at the same sample number of its own order.
//
// Threads: one at a time. Throws: Misuse for wrong arguments.
class Steps : public Stateful {
 public:
  // `name` is for messages: "data.tokens".
  Steps(std::string name, StreamOptions options);

  const std::string& name() const { return name_; }
  const StreamOptions& options() const { return options_; }
  int64_t rows() const { return options_.batch / options_.ranks; }
  int64_t batch_size() const { return options_.batch; }
  int64_t seed() const { return options_.seed; }
  // Returns the number of the first sample of the global batch of `step`.
  int64_t first_sample(int64_t step) const;
  // Returns the numbers of this rank's samples in the batch of `step`, ascending.
  std::vector<int64_t> numbers(int64_t step) const;
  int64_t step() const { return step_; }
  void seek(int64_t step);

  void visit(Visitor& visitor) override;  // saves or loads the value "stream": the state
  Value state() const;
  enum class Order : uint8_t { same, any };
  // Throws Misuse, and changes nothing, if the state is none of a stream, or if its order differs and `accepted` is `same`.
  void restore(const Value& state, Order accepted);

 private:
  // The step and the sample number with which batches of this size began.
  struct Start {
    int64_t step = 0, sample = 0;
  };

  std::string difference(const Value::Table& saved) const;

  std::string name_;
  StreamOptions options_;
  Start start_;
  int64_t step_ = 0;
};

}  // namespace zt::data
