// Several streams as one.
#pragma once

#include <memory>
#include <vector>

#include "interleaving.h"
#include "stream.h"

namespace zt::data {

// The samples of several streams, interleaved by weights. Each stream gives its samples in their order, from its first, with
// epochs of its own. Where a stream stands does not matter.
class BlendSequence : public SampleSequence {
 public:
  // Throws Misuse unless the streams have the same seq, vocabulary, tokenizer and fields.
  BlendSequence(std::vector<std::shared_ptr<const Stream>> streams, std::vector<double> weights, int64_t seed);

  Fields make(std::span<const int64_t> numbers) const override;
  int64_t epoch(int64_t number) const override;  // of the stream that was read through least often
  int64_t samples() const override;              // of all streams together
  int64_t seq() const override { return streams_.front()->source().seq(); }
  const TokenFile& file() const override { return streams_.front()->source().file(); }
  std::vector<double> token_frequencies() const override;  // those of the streams, by their weights

  const std::vector<double>& weights() const { return interleaving_.weights(); }

 private:
  std::vector<std::shared_ptr<const Stream>> streams_;
  Interleaving interleaving_;
};

}  // namespace zt::data
