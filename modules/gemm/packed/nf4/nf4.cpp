#include "packed/nf4/nf4.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "packed/panel_codes.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::packed {

namespace {

// Returns `count` numbers from 0.1 to 1 in equal steps, with the bits of torch.linspace on processors with AVX2.
std::vector<float> equal_steps(int64_t count) {
  const float first = 0.1F, last = 1, step = (last - first) / static_cast<float>(count - 1);
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(i < count / 2 ? std::fma(step, static_cast<float>(i), first)
                                    : std::fma(-step, static_cast<float>(count - 1 - i), last));
  return numbers;
}

// For each power of ten from 10^-6 to 1, twice as many fractions as for the one before lie between 0.1 and 1, of both signs. 0
// and 1 are added.
std::array<float, 256> make_scale_map() {
  constexpr double kPowers[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::vector<float> numbers{0, 1};
  for (size_t i = 0; i < std::size(kPowers); ++i) {
    const std::vector<float> bounds = equal_steps((int64_t{1} << i) + 1);
    for (size_t j = 0; j + 1 < bounds.size(); ++j) {
      const float number = static_cast<float>(kPowers[i]) * ((bounds[j] + bounds[j + 1]) / 2);
      numbers.push_back(number);
      numbers.push_back(-number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  std::array<float, 256> map{};
  std::copy(numbers.begin(), numbers.end(), map.begin());
  return map;
}

// Returns the code whose number is nearest to `number`, the lower one of two.
int nearest_nf4_code(float number) {
  static const std::array<float, 15> bounds = [] {
    std::array<float, 15> middle{};
    for (size_t i = 0; i < middle.size(); ++i) middle[i] = (nf4_codes()[i] + nf4_codes()[i + 1]) / 2;
    return middle;
  }();
  int code = 0;
  for (const float bound : bounds) code += number > bound ? 1 : 0;
  return code;
}

// Returns the index of the number of the map that is nearest, the lower one of two.
int nearest_map_index(float number) {
  const auto& map = nf4_scale_map();
  const auto above = std::lower_bound(map.begin(), map.end(), number);
  if (above == map.begin()) return 0;
  if (above == map.end()) return static_cast<int>(map.size()) - 1;
  const auto nearest = *above - number < number - *(above - 1) ? above : above - 1;
  return static_cast<int>(nearest - map.begin());
}

// Writes the codes of a row, and returns the largest absolute value of each group.
void pack_nf4_row(const float* numbers, const PackLayout& layout, uint8_t* bytes, int64_t row, float* largest) {
  constexpr float kLeastDivisor = 1e-38F;  // as in bitsandbytes
  for (int64_t g = 0; g < layout.groups; ++g) {
    const float* const group = numbers + g * layout.group;
    largest[g] = 0;
    for (int64_t i = 0; i < layout.group; ++i) largest[g] = std::max(largest[g], std::abs(group[i]));
    const float factor = 1 / std::max(largest[g], kLeastDivisor);
    uint8_t codes[kMostColumns];
    for (int64_t i = 0; i < layout.group; ++i)
      codes[i] = static_cast<uint8_t>(nearest_nf4_code(std::clamp(group[i] * factor, -1.0F, 1.0F)));
    write_nibbles(layout, bytes, row, g, codes);
  }
}

// largest: the largest absolute value of each group of the matrix.
void write_nested_scales(const PackLayout& layout, uint8_t* bytes, const std::vector<float>& largest) {
  const Nf4Tables tables(layout, bytes);
  std::copy(nf4_scale_map().begin(), nf4_scale_map().end(), tables.map);
  double sum = 0;
  for (const float each : largest) sum += each;
  const float mean = largest.empty() ? 0 : static_cast<float>(sum / static_cast<double>(largest.size()));
  for (int64_t block = 0; block < layout.nf4_blocks; ++block) {
    const int64_t first = block * kNf4Block, last = std::min(first + kNf4Block, layout.rows * layout.groups);
    float scale = 0;
    for (int64_t i = first; i < last; ++i) scale = std::max(scale, std::abs(largest[static_cast<size_t>(i)] - mean));
    for (int64_t i = first; i < last; ++i) {
      const float rest = largest[static_cast<size_t>(i)] - mean;
      write_scale_code(layout, bytes, i / layout.groups, i % layout.groups, nearest_map_index(scale > 0 ? rest / scale : 0));
    }
    tables.blocks[block] = {scale, mean};
  }
}

}  // namespace

const std::array<float, 16>& nf4_codes() {
  static constexpr std::array<float, 16> kCodes{
      -1.0F,
      -0.6961928009986877F,
      -0.5250730514526367F,
      -0.39491748809814453F,
      -0.28444138169288635F,
      -0.18477343022823334F,
      -0.09105003625154495F,
      0.0F,
      0.07958029955625534F,
      0.16093020141124725F,
      0.24611230194568634F,
      0.33791524171829224F,
      0.44070982933044434F,
      0.5626170039176941F,
      0.7229568362236023F,
      1.0F,
  };
  return kCodes;
}

const std::array<float, 256>& nf4_scale_map() {
  static const std::array<float, 256> map = make_scale_map();
  return map;
}

void pack_nf4(const at::Tensor& weight, const PackLayout& layout, uint8_t* bytes) {
  const float* const numbers = weight.const_data_ptr<float>();
  std::vector<float> largest(static_cast<size_t>(layout.rows * layout.groups));
  at::parallel_for(0, layout.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kPanelRows; row < std::min(end * kPanelRows, layout.rows); ++row)
      pack_nf4_row(numbers + row * layout.columns, layout, bytes, row, largest.data() + row * layout.groups);
  });
  if (layout.is_nested()) return write_nested_scales(layout, bytes, largest);
  for (int64_t i = 0; i < layout.rows * layout.groups; ++i)
    write_nf4_scale(layout, bytes, i / layout.groups, i % layout.groups, largest[static_cast<size_t>(i)]);
}

}  // namespace zt::packed
