#include "files/kept_ranges.h"

#include <algorithm>
#include <vector>

namespace zt::offload {

namespace {

class KeptOfRanges final : public KeptBytes {
 public:
  KeptOfRanges(std::shared_ptr<KeptRanges> ranges, int64_t place, int64_t bytes, ReadBytes read)
      : ranges_(std::move(ranges)), token_(ranges_->add(place, bytes)), read_(std::move(read)) {}
  ~KeptOfRanges() override { ranges_->remove(token_); }
  Work read(int64_t place, at::Tensor to) override { return read_(place, std::move(to)); }
  void release(int64_t place, int64_t bytes) override { ranges_->release(token_, place, bytes); }

 private:
  const std::shared_ptr<KeptRanges> ranges_;
  const KeptRanges::Token token_;
  const ReadBytes read_;
};

}  // namespace

KeptRanges::Token KeptRanges::add(int64_t begin, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ranges_.emplace(begin, Range{next_, begin + bytes});
  return next_++;
}

void KeptRanges::release(Token token, int64_t begin, int64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const int64_t end = begin + bytes;
    std::vector<std::pair<int64_t, int64_t>> rest;
    std::erase_if(ranges_, [&](const auto& entry) {
      const auto& [first, range] = entry;
      if (range.token != token || range.end <= begin || first >= end) return false;
      rest.emplace_back(first, std::min(range.end, begin));
      rest.emplace_back(std::max(first, end), range.end);
      return true;
    });
    for (const auto& [first, last] : rest) {
      if (first < last) ranges_.emplace(first, Range{token, last});
    }
  }
  released_.notify_all();
}

void KeptRanges::remove(Token token) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(ranges_, [&](const auto& entry) { return entry.second.token == token; });
  }
  released_.notify_all();
}

void KeptRanges::await_release(int64_t begin, int64_t bytes) {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [&] { return !has(begin, begin + bytes); });
}

bool KeptRanges::has(int64_t begin, int64_t end) const {
  return std::ranges::any_of(ranges_, [&](const auto& entry) { return entry.first < end && begin < entry.second.end; });
}

std::shared_ptr<KeptBytes> keep_bytes(std::shared_ptr<KeptRanges> ranges, int64_t place, int64_t bytes, ReadBytes read) {
  return std::make_shared<KeptOfRanges>(std::move(ranges), place, bytes, std::move(read));
}

}  // namespace zt::offload
