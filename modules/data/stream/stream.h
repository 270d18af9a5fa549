// Batches as a pure function of (seed, step). The global batch of a step is the same for any number of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tokens/token_file.h"
#include "zt/base/object.h"
#include "zt/base/stateful.h"
#include "zt/base/value.h"

namespace zt::data {

// A batch: maps a field's name to a tensor [n, ...] with one row per sample.
using Fields = std::map<std::string, at::Tensor>;

// A sample of an epoch: `sample` is an index in 0 .. samples-1. The same index may give other tokens in another epoch.
struct Place {
  int64_t epoch = 0, sample = 0;
};

// Defines samples and reads them. The order of samples, steps and ranks are the subject of Stream. Threads: any.
class SampleSource {
 public:
  virtual ~SampleSource();
  virtual int64_t samples() const = 0;  // per epoch; at least 1
  virtual int64_t seq() const = 0;      // tokens per sample
  // Returns `tokens` and `labels`, int64 [rows, seq], and possibly more fields. `seed` is the key of the differences between
  // epochs.
  virtual Fields make(std::span<const Place> rows, int64_t seed) const = 0;
  virtual const TokenFile& file() const = 0;
  virtual double entropy() const = 0;  // of the tokens of this split, in nats per token
};

// Returns the text of an option's value. Numbers that are equal have equal texts, whatever their types.
std::string text_of(const Value& value);

struct StreamOptions {
  int64_t batch = 1;          // samples per global batch
  int rank = 0, ranks = 1;    // index among the ranks that share the batch, and the number of these ranks
  int64_t micro_batches = 1;  // micro-batches that each rank's samples must divide into
  int64_t seed = 0;
  bool shuffle = true;             // true: each epoch has its own order; false: the order of the source
  Value::Table order = {};         // what defines the samples and their order besides seed and shuffle: plain values by option
  bool takes_other_order = false;  // restore accepts states of streams with another order
};

// Sample number g = step * batch + i of a run is index g mod samples of epoch g / samples; a batch may span two epochs. `shuffle`
// permutes each epoch by (seed, epoch). Rank r of W reads the r-th contiguous part of each batch.
//
// The state is the next step, the number of samples consumed before it, and the options that decide the order of samples. A
// stream with another batch size or another number of ranks continues with the next sample: its batch of the saved step begins
// there, and it has no earlier steps. A state with another order is refused, unless the caller allows it. The stream then
// continues at the same sample number of its own order.
//
// Invariants: batch(step) depends on the source, the options, the step, and on the place at which this batch size began.
// Threads: one at a time. Throws: Misuse for wrong arguments, Fault for damaged data.
class Stream : public Stateful {
 public:
  // `name` is for messages: "data.tokens".
  Stream(std::string name, std::unique_ptr<SampleSource> source, StreamOptions options);

  // Returns this rank's part of the batch of `step`: the source's fields, and `sample`, int64 [rows], with the sample numbers g.
  Fields batch(int64_t step) const;

  const SampleSource& source() const { return *source_; }
  int64_t rows() const { return options_.batch / options_.ranks; }
  int64_t batch_size() const { return options_.batch; }
  int64_t seed() const { return options_.seed; }
  int64_t epoch(int64_t step) const;  // 0-based, of the step's first sample
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

  int64_t first_sample(int64_t step) const;
  std::string difference(const Value::Table& saved) const;
  std::vector<Place> places(int64_t first) const;

  std::string name_;
  std::unique_ptr<SampleSource> source_;
  StreamOptions options_;
  Start start_;
  int64_t step_ = 0;
};

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::Stream)
}
