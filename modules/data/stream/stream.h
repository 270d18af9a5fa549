// Batches of tokens as a pure function of (options, step).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "epoch_order.h"
#include "steps.h"
#include "tokens/token_file.h"
#include "zt/base/object.h"

namespace zt::data {

// A batch: maps a field's name to a tensor [n, ...] with one row per sample.
using Fields = std::map<std::string, at::Tensor>;

// The samples of an epoch. Their order, steps and ranks are the subject of others. Threads: any.
class SampleSource {
 public:
  virtual ~SampleSource();
  virtual int64_t samples() const = 0;  // per epoch; at least 1
  virtual int64_t seq() const = 0;      // tokens per sample
  // Returns `tokens` and `labels`, int64 [rows, seq], and possibly more fields. `seed` is the key of the differences between
  // epochs.
  virtual Fields make(std::span<const Place> rows, int64_t seed) const = 0;
  virtual const TokenFile& file() const = 0;
  // Adds to counts[id] how often the id occurs in the tokens of this split. Requires counts of size vocab.
  virtual void add_counts(std::span<int64_t> counts) const = 0;
  std::vector<double> token_frequencies() const;  // by id
  double entropy() const { return data::entropy(token_frequencies()); }
};

// The endless sequence of the samples of a run. Threads: one at a time.
class SampleSequence {
 public:
  virtual ~SampleSequence();
  // Returns the samples with these numbers, which ascend: fields as SampleSource::make.
  virtual Fields make(std::span<const int64_t> numbers) const = 0;
  virtual int64_t epoch(int64_t number) const = 0;  // 0-based: how often all samples were read before this one
  virtual int64_t samples() const = 0;              // how many different ones there are
  virtual int64_t seq() const = 0;
  virtual const TokenFile& file() const = 0;                  // whose vocabulary and tokenizer the tokens have
  virtual std::vector<double> token_frequencies() const = 0;  // by id, over the tokens that the samples are made of
  double entropy() const { return data::entropy(token_frequencies()); }
};

// The samples of one source, in epochs.
class EpochSequence : public SampleSequence {
 public:
  EpochSequence(std::unique_ptr<SampleSource> source, int64_t seed, bool shuffle);
  Fields make(std::span<const int64_t> numbers) const override;
  int64_t epoch(int64_t number) const override { return number / order_.samples(); }
  int64_t samples() const override { return order_.samples(); }
  int64_t seq() const override { return source_->seq(); }
  const TokenFile& file() const override { return source_->file(); }
  std::vector<double> token_frequencies() const override { return source_->token_frequencies(); }

 private:
  std::unique_ptr<SampleSource> source_;
  int64_t seed_;
  EpochOrder order_;
};

// Invariants: batch(step) depends on the samples, the options, the step, and on the place at which this batch size began.
// Threads: one at a time. Throws: Misuse for wrong arguments, Fault for damaged data.
class Stream : public Steps {
 public:
  // Reads the samples of `source` in epochs, by the options seed and shuffle.
  Stream(std::string name, std::unique_ptr<SampleSource> source, StreamOptions options);
  // Reads `samples`, which have an order of their own: options.order describes it.
  Stream(std::string name, std::unique_ptr<SampleSequence> samples, StreamOptions options);

  // Returns this rank's part of the batch of `step`: the fields of its samples, and `sample`, int64 [rows], with the sample
  // numbers g.
  Fields batch(int64_t step) const;
  int64_t epoch(int64_t step) const { return samples_->epoch(first_sample(step)); }  // of the step's first sample
  const SampleSequence& source() const { return *samples_; }

 private:
  std::unique_ptr<SampleSequence> samples_;
};

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::Stream)
}
