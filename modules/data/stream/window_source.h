// Samples cut from one long run of tokens.
#pragma once

#include "stream.h"

namespace zt::data {

// Windows of seq + 1 tokens, one starting every seq tokens: tokens are the first seq, labels the last seq (each position's
// next token). They lie inside `range`.
//
// With Cut::shifted the first window of epoch e starts at a place 0 .. seq-1 drawn from (seed, e), so that a token does not
// stand behind the same context in every epoch; an epoch then leaves out up to seq tokens at each end. Cut::fixed starts at 0.
// Fields: tokens, labels, int64 [rows, seq]. Misuse when the range holds no window.
class WindowSource : public Source {
 public:
  enum class Cut : uint8_t { fixed, shifted };
  WindowSource(std::shared_ptr<const TokenFile> file, Range range, int64_t seq, Cut cut);

  int64_t samples() const override { return samples_; }
  int64_t seq() const override { return seq_; }
  Fields make(std::span<const Place> rows, int64_t seed) const override;
  const TokenFile& file() const override { return *file_; }
  double entropy() const override;

 private:
  int64_t shift(int64_t seed, int64_t epoch) const;

  std::shared_ptr<const TokenFile> file_;
  Range range_;
  int64_t seq_, samples_;
  int64_t shifts_;  // places that an epoch may start at
};

}  // namespace zt::data
