#include "packed/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "packed/gemm_result.h"
#include "packed/row_words.h"
#include "zt/base/rows.h"

namespace zt::packed {

namespace {

constexpr int64_t kBlockRows = 256;  // rows of x per pass over the matrix: their totals and words stay in the second-level cache
constexpr int64_t kMostPanels = 16;  // of a part
constexpr int64_t kFewRows = 12;     // most rows for which it does not pay to unpack codes first

ColumnGroups column_groups(const PackLayout& layout) {
  return {layout.columns, layout.padded_columns, layout.group, layout.groups};
}

// Chooses words in which both operands are exact.
PanelArithmetic choose_arithmetic(const PanelKernels& kernels, const at::Tensor& x, const PackLayout& layout,
                                  Activations activations) {
  if (activations == Activations::int8) return PanelArithmetic::bytes;
  const bool is_bf16 =
      x.scalar_type() == at::kBFloat16 && layout.code != StoredCode::fp32 && layout.spec.format != PackFormat::nf4;
  return kernels.has_pairs && is_bf16 && x.size(0) > kFewRows ? PanelArithmetic::pairs : PanelArithmetic::floats;
}

// The panels of a matrix that a thread multiplies by many rows.
class PanelTiles {
 public:
  PanelTiles(const PanelKernels& kernels, const PackLayout& layout, const uint8_t* bytes, PanelArithmetic arithmetic,
             const RowWords& rows, int64_t most_panels)
      : kernels_(kernels),
        layout_(layout),
        bytes_(bytes),
        arithmetic_(arithmetic),
        rows_(rows),
        tile_panels_(std::max<int64_t>(kernels.tile_panels, rows.rows() < 8 ? 4 : 1)),
        totals_stride_(most_panels * kPanelRows),
        totals_(static_cast<size_t>(rows.rows() * totals_stride_)),
        tile_(new uint32_t[static_cast<size_t>(tile_panels_ * kPanelRows * kMostColumns)]) {}

  // Multiplies the panels [begin, end), and writes the columns of the result from `row` on.
  void run(int64_t begin, int64_t end, const GemmResult& out, int64_t row) {
    std::fill(totals_.begin(), totals_.end(), 0.0F);
    for (int64_t g = 0; g < layout_.groups; ++g) {
      for (int64_t panel = begin; panel < end; panel += tile_panels_)
        multiply_group(g, panel, std::min(tile_panels_, end - panel), (panel - begin) * kPanelRows);
    }
    const int64_t first = begin * kPanelRows, columns = std::min(end * kPanelRows, layout_.rows) - first;
    out.write(totals_.data(), totals_stride_, rows_.rows(), columns, row, first);
  }

 private:
  void multiply_group(int64_t g, int64_t panel, int64_t panels, int64_t column) {
    TileTask task{};
    read_tile(g, panel, panels, task);
    fetch_next(g, panel, panels);
    task.x = rows_.words_of(g);
    task.rows = rows_.rows();
    task.steps = rows_.steps_of(g);
    alignas(64) float scales[4 * kPanelRows], minima[4 * kPanelRows];
    for (int64_t p = 0; p < panels; ++p)
      read_scales(layout_, bytes_, panel + p, g, scales + p * kPanelRows, minima + p * kPanelRows);
    task.scales = scales;
    task.minima = layout_.has_minima() ? minima : nullptr;
    task.row_terms = rows_.terms_of(g);
    task.row_scales = rows_.scales_of(g);
    task.row_starts = rows_.starts_of(g);
    task.totals = totals_.data() + column;
    task.totals_row = totals_stride_;
    task.panels = panels;
    kernels_.multiply_tile(arithmetic_of(task, g), task);
  }

  // Prefetches the next group of these panels, while this one is multiplied: panels are too short for the processor to foresee.
  void fetch_next(int64_t g, int64_t panel, int64_t panels) const {
    constexpr int64_t kLine = 64;
    if (g + 1 == layout_.groups) return;
    for (int64_t p = 0; p < panels; ++p) {
      const uint8_t* const next = bytes_ + layout_.group_offset(panel + p, g + 1);
      const int64_t bytes = std::min(layout_.group_bytes, layout_.panel_bytes - (g + 1) * layout_.group_bytes);
      for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(next + i, 0, 2);
    }
  }

  void read_tile(int64_t g, int64_t panel, int64_t panels, TileTask& task) {
    const uint8_t* const codes = bytes_ + layout_.group_offset(panel, g);
    if (layout_.code == StoredCode::bf16 && arithmetic_ == PanelArithmetic::pairs) {
      task.w = codes;
      task.w_panel = layout_.panel_bytes;
      return;
    }
    const int64_t words = kPanelRows * rows_.steps_of(g);
    for (int64_t p = 0; p < panels; ++p) {
      kernels_.unpack(layout_.code, arithmetic_, codes + p * layout_.panel_bytes, layout_.columns_of(g), nibble_table(layout_),
                      tile_.get() + p * words);
    }
    task.w = reinterpret_cast<const uint8_t*>(tile_.get());
    task.w_panel = words * int64_t{sizeof(uint32_t)};
  }

  // Replaces the instruction for pairs where it might take numbers as zero.
  PanelArithmetic arithmetic_of(const TileTask& task, int64_t g) const {
    if (arithmetic_ != PanelArithmetic::pairs) return arithmetic_;
    uint32_t w = 127;  // codes are integers
    if (layout_.code == StoredCode::bf16) {
      w = 255;
      for (int64_t p = 0; p < task.panels; ++p) {
        const auto* const words = reinterpret_cast<const uint32_t*>(task.w + p * task.w_panel);
        w = std::min(w, kernels_.least_exponent(words, task.steps * kPanelRows));
      }
    }
    return safe_pairs(rows_.least_exponent_of(g), w) ? PanelArithmetic::pairs : PanelArithmetic::wide_pairs;
  }

  const PanelKernels& kernels_;
  const PackLayout& layout_;
  const uint8_t* const bytes_;
  const PanelArithmetic arithmetic_;
  const RowWords& rows_;
  const int64_t tile_panels_, totals_stride_;
  std::vector<float> totals_;
  std::unique_ptr<uint32_t[]> tile_;
};

// Multiplies few rows: codes go from memory to registers.
void multiply_few_rows(const PanelKernels& kernels, const PackLayout& layout, const uint8_t* bytes, PanelArithmetic arithmetic,
                       const RowWords& x, const GemmResult& out, int64_t row) {
  constexpr int64_t kGrain = 1 << 16;  // fewest multiply-adds per part
  constexpr int64_t kParts = 4;        // of a thread: within one, the kernel fetches the next panels from memory
  const int64_t work = kernels.row_panels * kPanelRows * std::max<int64_t>(1, layout.padded_columns) * x.rows();
  const int64_t tasks = (layout.panels + kernels.row_panels - 1) / kernels.row_panels;
  for_parts(tasks, std::max<int64_t>({1, kGrain / work, tasks / (kParts * at::get_num_threads())}), [&] {
    return [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        alignas(64) float totals[kMostPanels * kPanelRows * kFewRows];  // NOLINT: overwritten
        const int64_t panel = i * kernels.row_panels, panels = std::min(kernels.row_panels, layout.panels - panel);
        const int64_t stride = kernels.row_panels * kPanelRows;
        kernels.multiply_few_rows(arithmetic, {&layout, bytes, nibble_table(layout), panel, panels, x.rows(), x.words_of(0),
                                               x.terms_of(0), x.scales_of(0), x.starts_of(0), totals, stride});
        const int64_t first = panel * kPanelRows, columns = std::min(panels * kPanelRows, layout.rows - first);
        out.write(totals, stride, x.rows(), columns, row, first);
      }
    };
  });
}

}  // namespace

void multiply(const PanelKernels& kernels, const at::Tensor& x, const PackedMatrix& w, const at::Tensor& to,
              Activations activations, const GemmAddends& addends) {
  const GemmResult out(to, addends);
  const PackLayout layout = pack_layout(w.spec, w.rows, w.columns);
  const auto* const bytes = w.bytes.const_data_ptr<uint8_t>();
  const PanelArithmetic arithmetic = choose_arithmetic(kernels, x, layout, activations);
  const int64_t m = x.size(0);
  RowWords words(arithmetic, column_groups(layout), std::min(m, kBlockRows), layout.zero_point(), layout.has_minima());
  for (int64_t row = 0; row < m; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, m - row);
    words.read(kernels, number_rows(x, row), rows);
    if (rows <= kFewRows && arithmetic != PanelArithmetic::pairs) {
      multiply_few_rows(kernels, layout, bytes, arithmetic, words, out, row);
      continue;
    }
    const int64_t share = layout.panels / (4 * at::get_num_threads()) / 4 * 4;
    const int64_t panels = std::clamp<int64_t>(share, 4, kMostPanels);
    for_parts(layout.panels, panels, [&] {
      auto tiles = std::make_shared<PanelTiles>(kernels, layout, bytes, arithmetic, words, panels);
      return [tiles, &out, row](int64_t begin, int64_t end) { tiles->run(begin, end, out, row); };
    });
  }
}

}  // namespace zt::packed
