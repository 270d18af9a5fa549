#include "gemm/packed/packed_reference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "packed/packed_kernels.h"
#include "processor.h"
#include "zt/base/isa.h"

namespace zt::test {

namespace {

constexpr int64_t kRowsOfPanel = 16;
constexpr std::array<float, 16> kNormalFloat4{
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

template <class T>
T number_at(const uint8_t* from) {
  T number;
  std::memcpy(&number, from, sizeof(T));
  return number;
}

float half_at(const uint8_t* from) {
  return static_cast<float>(number_at<c10::Half>(from));
}

// Returns a nibble: the codes of 8 columns of a row are in 4 bytes.
int nibble_at(const uint8_t* codes, int64_t row, int64_t column) {
  const uint8_t byte = codes[column / 8 * 64 + row * 4 + column % 4];
  return column % 8 < 4 ? byte & 15 : byte >> 4;
}

// Returns the sum of a group of pairs, the second number of a pair first.
template <class Code>
float sum_of_pairs(const float* x, int64_t count, const Code& code) {
  float sum = 0;
  for (int64_t i = 0; i < count; i += 2) {
    sum = std::fma(x[i + 1], code(i + 1), sum);
    sum = std::fma(x[i], code(i), sum);
  }
  return sum;
}

float sum_of_numbers(const float* x, int64_t count) {
  std::array<float, 16> sums{};
  for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i % 16)] += x[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// A group of a row of x with 8 bits.
struct RoundedGroup {
  float scale = 0;
  std::vector<int64_t> codes;

  RoundedGroup(const float* x, int64_t count) : codes(static_cast<size_t>(count)) {
    float largest = 0;
    bool is_finite = true;
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::abs(x[i]));
      is_finite = is_finite && std::isfinite(x[i]);
    }
    scale = is_finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    if (!(scale > 0)) return;
    for (int64_t i = 0; i < count; ++i)
      codes[static_cast<size_t>(i)] = static_cast<int64_t>(std::clamp(std::nearbyint(x[i] / scale), -127.0F, 127.0F));
  }
};

float element_of(const float* x, const UnpackedCodes& w, int64_t row, Activations activations) {
  float total = 0;
  for (int64_t g = 0; g < w.groups; ++g) {
    const int64_t first = g * w.group, count = std::min(w.group, w.columns - first);
    if (activations == Activations::floating) {
      const float sum = sum_of_pairs(x + first, count, [&](int64_t i) { return w.code(row, first + i); });
      total = std::fma(w.scale(row, g), sum, total);
      if (w.has_minima) total = std::fma(w.minimum(row, g), sum_of_numbers(x + first, count), total);
      continue;
    }
    const RoundedGroup rounded(x + first, count);
    int64_t sum = 0, codes = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += rounded.codes[static_cast<size_t>(i)] * static_cast<int64_t>(w.code(row, first + i));
      codes += rounded.codes[static_cast<size_t>(i)];
    }
    total = std::fma(rounded.scale * w.scale(row, g), static_cast<float>(sum), total);
    if (w.has_minima) total = std::fma(w.minimum(row, g), rounded.scale * static_cast<float>(codes), total);
  }
  return total;
}

// Returns x as fp32 with zeros up to `columns`.
at::Tensor widened(const at::Tensor& x, int64_t columns) {
  const at::Tensor wide = at::zeros({x.size(0), columns}, at::kFloat);
  wide.narrow(1, 0, x.size(1)).copy_(x);
  return wide;
}

}  // namespace

UnpackedCodes::UnpackedCodes(const PackedMatrix& matrix) : rows(matrix.rows), columns((matrix.columns + 1) / 2 * 2) {
  const PackSpec& spec = matrix.spec;
  group = spec.format == PackFormat::panels ? 128 : spec.group;
  groups = (columns + group - 1) / group;
  has_minima = spec.format == PackFormat::int4 && !spec.symmetric;
  codes.resize(static_cast<size_t>(rows * columns));
  scales.assign(static_cast<size_t>(rows * groups), 1.0F);
  minima.resize(scales.size());
  if (spec.format == PackFormat::panels) read_panels(matrix);
  else if (spec.format == PackFormat::int8) read_int8(matrix);
  else if (spec.format == PackFormat::int4) read_int4(matrix);
  else read_nf4(matrix);
}

float UnpackedCodes::value(int64_t row, int64_t column) const {
  const int64_t g = column / group;
  if (has_minima) return std::fma(scale(row, g), code(row, column), minimum(row, g));
  return scale(row, g) * code(row, column);
}

void UnpackedCodes::read_panels(const PackedMatrix& matrix) {
  const auto* const bytes = matrix.bytes.const_data_ptr<uint8_t>();
  const int64_t size = matrix.spec.dtype == at::kFloat ? 4 : 2, panel_bytes = columns * kRowsOfPanel * size;
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* const panel = bytes + row / kRowsOfPanel * panel_bytes;
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t place = size == 4 ? (column * kRowsOfPanel + row % kRowsOfPanel) * 4
                                      : ((column / 2 * kRowsOfPanel + row % kRowsOfPanel) * 2 + column % 2) * 2;
      codes[static_cast<size_t>(row * columns + column)] =
          size == 4 ? number_at<float>(panel + place) : static_cast<float>(number_at<c10::BFloat16>(panel + place));
    }
  }
}

void UnpackedCodes::read_int8(const PackedMatrix& matrix) {
  const auto* const bytes = matrix.bytes.const_data_ptr<uint8_t>();
  const int64_t group_bytes = group * kRowsOfPanel + kRowsOfPanel * 2;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* const from = bytes + (row / kRowsOfPanel * groups + g) * group_bytes;
      const int64_t in_panel = row % kRowsOfPanel;
      for (int64_t i = 0; i < group; ++i)
        codes[static_cast<size_t>(row * columns + g * group + i)] = static_cast<int8_t>(from[i / 4 * 64 + in_panel * 4 + i % 4]);
      scales[static_cast<size_t>(row * groups + g)] = half_at(from + group * kRowsOfPanel + in_panel * 2);
    }
  }
}

void UnpackedCodes::read_int4(const PackedMatrix& matrix) {
  const auto* const bytes = matrix.bytes.const_data_ptr<uint8_t>();
  const int64_t code_bytes = group * kRowsOfPanel / 2, group_bytes = code_bytes + kRowsOfPanel * (has_minima ? 4 : 2);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* const from = bytes + (row / kRowsOfPanel * groups + g) * group_bytes;
      const int64_t in_panel = row % kRowsOfPanel;
      for (int64_t i = 0; i < group; ++i) {
        const int code = nibble_at(from, in_panel, i) - (has_minima ? 0 : 8);
        codes[static_cast<size_t>(row * columns + g * group + i)] = static_cast<float>(code);
      }
      const auto place = static_cast<size_t>(row * groups + g);
      scales[place] = half_at(from + code_bytes + in_panel * 2);
      if (has_minima) minima[place] = half_at(from + code_bytes + (kRowsOfPanel + in_panel) * 2);
    }
  }
}

void UnpackedCodes::read_nf4(const PackedMatrix& matrix) {
  const auto* const bytes = matrix.bytes.const_data_ptr<uint8_t>();
  const bool is_nested = matrix.spec.nested;
  const int64_t code_bytes = group * kRowsOfPanel / 2, group_bytes = code_bytes + kRowsOfPanel * (is_nested ? 1 : 4);
  const uint8_t* const map = bytes + (rows + kRowsOfPanel - 1) / kRowsOfPanel * groups * group_bytes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* const from = bytes + (row / kRowsOfPanel * groups + g) * group_bytes;
      const int64_t in_panel = row % kRowsOfPanel, number = row * groups + g;
      for (int64_t i = 0; i < group; ++i) {
        codes[static_cast<size_t>(row * columns + g * group + i)] =
            kNormalFloat4[static_cast<size_t>(nibble_at(from, in_panel, i))];
      }
      if (!is_nested) {
        scales[static_cast<size_t>(number)] = number_at<float>(from + code_bytes + in_panel * 4);
        continue;
      }
      const auto factor = number_at<float>(map + from[code_bytes + in_panel] * 4);
      const uint8_t* const block = map + (256 + number / 256 * 2) * 4;
      scales[static_cast<size_t>(number)] = factor * number_at<float>(block) + number_at<float>(block + 4);
    }
  }
}

at::Tensor reference_values(const PackedMatrix& matrix) {
  const UnpackedCodes w(matrix);
  const at::Tensor values = at::empty({matrix.rows, matrix.columns}, at::kFloat);
  auto* const to = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) to[i] = w.value(i / matrix.columns, i % matrix.columns);
  return values;
}

at::Tensor reference_gemm(const at::Tensor& x, const PackedMatrix& matrix, Activations activations) {
  const UnpackedCodes w(matrix);
  const at::Tensor wide = widened(x, w.columns), out = at::empty({x.size(0), w.rows}, at::kFloat);
  auto* const to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i)
    to[i] = element_of(wide.const_data_ptr<float>() + i / w.rows * w.columns, w, i % w.rows, activations);
  return out;
}

at::Tensor reference_gemm_transposed(const at::Tensor& dy, const PackedMatrix& matrix) {
  constexpr int64_t kBlock = 128;
  const UnpackedCodes w(matrix);
  const int64_t padded = (w.rows + 1) / 2 * 2;
  const at::Tensor wide = widened(dy, padded), dx = at::empty({dy.size(0), matrix.columns}, at::kFloat);
  auto* const to = dx.mutable_data_ptr<float>();
  for (int64_t i = 0; i < dx.numel(); ++i) {
    const float* const each = wide.const_data_ptr<float>() + i / matrix.columns * padded;
    float total = 0;
    for (int64_t first = 0; first < padded; first += kBlock) {
      total += sum_of_pairs(each + first, std::min(kBlock, padded - first),
                            [&](int64_t j) { return first + j < w.rows ? w.value(first + j, i % matrix.columns) : 0; });
    }
    to[i] = total;
  }
  return dx;
}

ThreadsScope::ThreadsScope(int threads) : before_(at::get_num_threads()) {
  at::set_num_threads(threads);
}

ThreadsScope::~ThreadsScope() {
  at::set_num_threads(before_);
}

std::vector<NamedKernels> all_packed_kernels() {
  std::vector<NamedKernels> all;
  const Processor& processor = find_processor();
  for (const Isa isa : supported_isas()) {
    all.push_back({isa_name(isa), make_packed_kernels(isa, false, false)});
    if (isa != Isa::avx512) continue;
    if (processor.has_vnni) all.push_back({"avx512 with vnni", make_packed_kernels(isa, true, false)});
    if (processor.has_bf16) all.push_back({"avx512 with bf16", make_packed_kernels(isa, processor.has_vnni, true)});
  }
  return all;
}

PackedMatrix make_packed(const PackedKernels& kernels, const PackSpec& spec, int64_t rows, int64_t columns) {
  return {spec, rows, columns, at::full({kernels.bytes(spec, rows, columns)}, 0xa5, at::kByte)};
}

PackedMatrix packed_from(const PackedKernels& kernels, const PackSpec& spec, const at::Tensor& weight) {
  PackedMatrix matrix = make_packed(kernels, spec, weight.size(0), weight.size(1));
  kernels.pack(weight.contiguous(), matrix);
  return matrix;
}

std::vector<PackSpec> all_pack_specs() {
  std::vector<PackSpec> specs{{PackFormat::panels, 64, false, at::kFloat},
                              {PackFormat::panels, 64, false, at::kBFloat16},
                              {PackFormat::nf4, 64, false, at::kBFloat16},
                              {PackFormat::nf4, 64, false, at::kBFloat16, Activations::floating, false}};
  for (const int64_t group : {32, 64, 128}) {
    specs.push_back({PackFormat::int8, group, false, at::kBFloat16});
    specs.push_back({PackFormat::int4, group, false, at::kBFloat16});
    specs.push_back({PackFormat::int4, group, true, at::kBFloat16});
  }
  return specs;
}

std::string describe_spec(const PackSpec& spec) {
  static constexpr std::array kNames{"plain", "panels", "int8", "int4", "nf4"};
  return fmt::format("{}, group {}{}{}, {}", kNames[static_cast<size_t>(spec.format)], spec.group,
                     spec.symmetric ? ", symmetric" : "", spec.nested ? "" : ", not nested", c10::toString(spec.dtype));
}

}  // namespace zt::test
