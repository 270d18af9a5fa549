// Batches as a pure function of (seed, step): what every rank reads at every step, whatever the number of ranks.
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

namespace zt::data {

// A batch: field -> tensor [n, ...] with one row a sample.
using Fields = std::map<std::string, at::Tensor>;

// One sample: `sample` of 0 .. samples-1 as it is cut in `epoch`.
struct Place {
  int64_t epoch = 0, sample = 0;
};

// What samples are and how they are read. Knows nothing of order, steps or ranks. Threads: const.
class Source {
 public:
  virtual ~Source();
  virtual int64_t samples() const = 0;  // of an epoch; at least 1
  virtual int64_t seq() const = 0;      // tokens of a sample
  // tokens and labels, int64 [rows, seq], and more. `seed` keys what varies from epoch to epoch.
  virtual Fields make(std::span<const Place> rows, int64_t seed) const = 0;
  virtual const TokenFile& file() const = 0;
  virtual double entropy() const = 0;  // of the tokens of this split, in nats a token
};

struct StreamOptions {
  int64_t batch = 1;          // samples of the global batch
  int rank = 0, ranks = 1;    // place among the ranks that share the batch, and their number
  int64_t micro_batches = 1;  // parts that each rank's samples must divide into
  int64_t seed = 0;
  bool shuffle = true;  // each epoch in an order of its own; false: in the order of the source
};

// Sample number g = step * batch + i of a run is place g mod samples of epoch g / samples (a batch may span two epochs), which
// `shuffle` permutes by (seed, epoch). Rank r of W reads the r-th contiguous part of each batch.
//
// Invariants: batch(step) depends on the source, the options and the step only. The whole state is (seed, step).
// Threads: one. Errors: Misuse for arguments; Fault when the data is damaged.
class Stream : public Stateful {
 public:
  // `name` is for messages: "data.tokens".
  Stream(std::string name, std::unique_ptr<Source> source, StreamOptions options);

  // This rank's part of the batch of `step`: the source's fields and `sample`, int64 [rows], the samples' numbers g.
  Fields batch(int64_t step) const;

  const Source& source() const { return *source_; }
  int64_t rows() const { return options_.batch / options_.ranks; }
  int64_t batch_size() const { return options_.batch; }
  int64_t seed() const { return options_.seed; }
  int64_t epoch(int64_t step) const;  // 0-based, of the step's first sample
  int64_t step() const { return step_; }
  void seek(int64_t step);

  void visit(Visitor& visitor) override;  // the value "stream": {seed, step}
  Value state() const;
  void restore(const Value& state);

 private:
  int64_t checked_step(int64_t step) const;
  std::vector<Place> places(int64_t first) const;

  std::string name_;
  std::unique_ptr<Source> source_;
  StreamOptions options_;
  int64_t step_ = 0;
};

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::Stream)
}
