#include "measure/read_rate.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "zt/base/tensor.h"
#include "zt/process/trace.h"

namespace zt::infer {

namespace {

constexpr int64_t kLine = 64;                       // bytes
constexpr int64_t kUsualCache = int64_t{32} << 20;  // bytes

// Adds all words of some lines. There are enough sums that none waits for another.
uint64_t sum_of(const uint64_t* words, int64_t count) {
  uint64_t sums[kLine / 8] = {};
  for (int64_t i = 0; i < count; i += kLine / 8) {
    for (int64_t j = 0; j < kLine / 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t each : sums) sum += each;
  return sum;
}

}  // namespace

int64_t last_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    int64_t size = 0;
    char unit = 0;
    if (file >> size >> unit) largest = std::max(largest, unit == 'M' ? size << 20 : size << 10);
  }
  return largest > 0 ? largest : kUsualCache;
}

double read_rate(int64_t bytes, double seconds) {
  const int64_t lines = std::max<int64_t>(bytes / kLine, 1);
  const at::Tensor buffer = large_zeros({lines * kLine}, at::kByte);
  const auto* words = reinterpret_cast<const uint64_t*>(buffer.const_data_ptr<uint8_t>());
  std::atomic<uint64_t> sum = 0;  // so that no read is left out
  double best = 0;
  const int64_t first = now_ns();
  do {
    const int64_t begin = now_ns();
    at::parallel_for(0, lines, 1 << 14,
                     [&](int64_t from, int64_t to) { sum += sum_of(words + from * (kLine / 8), (to - from) * (kLine / 8)); });
    best = std::max(best, static_cast<double>(lines * kLine) / (static_cast<double>(now_ns() - begin) * 1e-9));
  } while (static_cast<double>(now_ns() - first) * 1e-9 < seconds);
  return sum == 0 ? best : 0;
}

}  // namespace zt::infer
