// Samples from one long run of tokens.
#pragma once

#include "stream.h"

namespace zt::data {

// Windows of seq + 1 tokens inside `range`. One starts every seq tokens. The first seq tokens are the inputs, the last seq tokens
// the labels (each position's next token).
//
// With Cut::shifted the first window of epoch e starts at an offset in 0 .. seq-1 drawn from (seed, e), so that a token does not
// have the same context in every epoch. An epoch then leaves out fewer than 2 * seq tokens at the two ends of the range. With
// Cut::fixed the offset is 0.
// Fields: tokens and labels, int64 [rows, seq]. The constructor throws Misuse if the range holds no window.
class WindowSource : public SampleSource {
 public:
  enum class Cut : uint8_t { fixed, shifted };
  WindowSource(std::shared_ptr<const TokenFile> file, IndexRange range, int64_t seq, Cut cut);

  int64_t samples() const override { return samples_; }
  int64_t seq() const override { return seq_; }
  Fields make(std::span<const Place> rows, int64_t seed) const override;
  const TokenFile& file() const override { return *file_; }
  void add_counts(std::span<int64_t> counts) const override { file_->add_counts(range_, counts); }

 private:
  int64_t shift(int64_t seed, int64_t epoch) const;

  std::shared_ptr<const TokenFile> file_;
  IndexRange range_;
  int64_t seq_, samples_;
  int64_t shifts_;  // number of offsets at which an epoch may start
};

}  // namespace zt::data
