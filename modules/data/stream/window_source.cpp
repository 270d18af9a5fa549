#include "window_source.h"

#include <ATen/ops/empty.h>

#include "zt/base/error.h"
#include "zt/random/rng.h"

namespace zt::data {

namespace {

std::span<int64_t> row_of(const at::Tensor& matrix, size_t row) {
  const auto columns = static_cast<size_t>(matrix.size(1));
  return {matrix.data_ptr<int64_t>() + row * columns, columns};
}

}  // namespace

WindowSource::WindowSource(std::shared_ptr<const TokenFile> file, IndexRange range, int64_t seq, Cut cut)
    : file_(std::move(file)), range_(range), seq_(seq) {
  if (range_.size() < seq_ + 1) {
    misuse(
        "'{}' gives {} of its {} tokens to this split, where one window needs seq + 1 = {}: give a smaller seq, another "
        "validation fraction, or more text",
        file_->path(), range_.size(), file_->size(), seq_ + 1);
  }
  // After a shift of seq - 1 the last window must still fit. In a range of less than 2 * seq tokens, shifts are smaller.
  const int64_t room = cut == Cut::shifted ? range_.size() - seq_ : range_.size() - 1;
  samples_ = std::max<int64_t>(1, room / seq_);
  shifts_ = cut == Cut::shifted ? std::min(seq_, range_.size() - samples_ * seq_) : 1;
}

int64_t WindowSource::shift(int64_t seed, int64_t epoch) const {
  if (shifts_ == 1) return 0;
  // The last argument is 1, because the permutation of the epoch uses the key with 0.
  const Philox key = Philox::keyed(static_cast<uint64_t>(seed), Purpose::shuffle, static_cast<uint64_t>(epoch), 1);
  return static_cast<int64_t>(key.block(0, 0)[0] % static_cast<uint64_t>(shifts_));
}

Fields WindowSource::make(std::span<const Place> rows, int64_t seed) const {
  const std::vector<int64_t> shape{static_cast<int64_t>(rows.size()), seq_};
  const at::Tensor tokens = at::empty(shape, at::kLong), labels = at::empty(shape, at::kLong);
  for (size_t row = 0; row < rows.size(); ++row) {
    const int64_t first = range_.begin + shift(seed, rows[row].epoch) + rows[row].sample * seq_;
    file_->read_shifted(first, row_of(tokens, row), row_of(labels, row));
  }
  return {{"tokens", tokens}, {"labels", labels}};
}

}  // namespace zt::data
