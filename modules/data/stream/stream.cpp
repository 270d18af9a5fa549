#include "stream.h"

#include <ATen/ops/tensor.h>

namespace zt {
ZT_DEFINE_OBJECT(data::Stream, "TokenStream")
}

namespace zt::data {

SampleSource::~SampleSource() = default;

std::vector<double> SampleSource::token_frequencies() const {
  std::vector<int64_t> counts(static_cast<size_t>(file().vocab()));
  add_counts(counts);
  return frequencies(counts);
}

SampleSequence::~SampleSequence() = default;

EpochSequence::EpochSequence(std::unique_ptr<SampleSource> source, int64_t seed, bool shuffle)
    : source_(std::move(source)), seed_(seed), order_(source_->samples(), seed, shuffle) {}

Fields EpochSequence::make(std::span<const int64_t> numbers) const {
  return source_->make(order_.places(numbers), seed_);
}

Stream::Stream(std::string name, std::unique_ptr<SampleSource> source, StreamOptions options)
    : Stream(std::move(name), std::make_unique<EpochSequence>(std::move(source), options.seed, options.shuffle),
             with_epoch_order(options)) {}

Stream::Stream(std::string name, std::unique_ptr<SampleSequence> samples, StreamOptions options)
    : Steps(std::move(name), std::move(options)), samples_(std::move(samples)) {}

Fields Stream::batch(int64_t step) const {
  const std::vector<int64_t> numbers = this->numbers(step);
  Fields fields = samples_->make(numbers);
  fields["sample"] = at::tensor(numbers, at::kLong);
  return fields;
}

}  // namespace zt::data
