#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "packed/convert.h"
#include "packed/gemm_result.h"
#include "packed/product.h"
#include "packed/row_words.h"
#include "zt/base/rows.h"

namespace zt::packed {

namespace {

constexpr int64_t kBlockDyRows = 256;                            // rows of dy per pass over the matrix
constexpr int64_t kTilePanelsDown = kBlockColumns / kPanelRows;  // panels of a block of W's rows
constexpr int64_t kTileVectors = kMostColumns / kPanelRows;      // of 16 columns of a group
constexpr int64_t kTileWords = kBlockColumns * kPanelRows * kTileVectors;

// Groups of columns that a thread multiplies. The loops are those of multiply(): here a step is a row of W, and a "panel" of the
// tile has 16 of its columns.
class TransposedTiles {
 public:
  TransposedTiles(const PanelKernels& kernels, const PackLayout& layout, const uint8_t* bytes, const ColumnGroups& blocks,
                  const RowWords& rows)
      : kernels_(kernels),
        layout_(layout),
        blocks_(blocks),
        rows_(rows),
        reader_(kernels, layout, bytes),
        ones_(static_cast<size_t>(kMostColumns), 1.0F),
        totals_(static_cast<size_t>(rows.rows() * kMostColumns)),
        tile_(new float[kTileWords]) {}

  // Multiplies by the columns of group g, and writes these columns of the result from `row` on.
  void run(int64_t g, const GemmResult& out, int64_t row) {
    std::fill(totals_.begin(), totals_.end(), 0.0F);
    const int64_t first = g * layout_.group, columns = std::min(layout_.columns_of(g), layout_.columns - first);
    for (int64_t block = 0; block < blocks_.groups; ++block) multiply_block(g, block, (columns + kPanelRows - 1) / kPanelRows);
    out.write(totals_.data(), kMostColumns, rows_.rows(), columns, row, first);
  }

 private:
  void multiply_block(int64_t g, int64_t block, int64_t vectors) {
    const int64_t steps = blocks_.columns_of(block);
    read_block(g, block, steps, vectors);
    TileTask task{};
    task.w = reinterpret_cast<const uint8_t*>(tile_.get());
    task.w_panel = steps * kPanelRows * int64_t{sizeof(float)};
    task.x = rows_.words_of(block);
    task.rows = rows_.rows();
    task.steps = steps;
    task.scales = ones_.data();
    task.row_terms = rows_.terms_of(block);
    task.row_scales = rows_.scales_of(block);
    task.row_starts = rows_.starts_of(block);
    task.totals = totals_.data();
    task.totals_row = kMostColumns;
    task.panels = vectors;
    kernels_.multiply_tile(PanelArithmetic::floats, task);
  }

  // Writes W's numbers [vectors of 16 columns][steps][16]. Of each pair of steps, the second one comes first.
  void read_block(int64_t g, int64_t block, int64_t steps, int64_t vectors) {
    const int64_t columns = layout_.columns_of(g);
    if (columns % kPanelRows != 0) std::fill_n(tile_.get(), steps * kPanelRows * vectors, 0.0F);
    for (int64_t step = 0; step < steps; step += kPanelRows) {
      const int64_t panel = block * kTilePanelsDown + step / kPanelRows, rows = std::min(kPanelRows, steps - step);
      const float* const numbers = reader_.read(panel, g);
      for (int64_t column = 0; column < columns; ++column) {
        const float* const from = numbers + column * kPanelRows;
        float* const to = tile_.get() + (column / kPanelRows * steps + step) * kPanelRows + column % kPanelRows;
        for (int64_t i = 0; i < rows; ++i) to[(i ^ 1) * kPanelRows] = from[i];
      }
    }
  }

  const PanelKernels& kernels_;
  const PackLayout& layout_;
  const ColumnGroups& blocks_;
  const RowWords& rows_;
  GroupReader reader_;
  const std::vector<float> ones_;
  std::vector<float> totals_;
  std::unique_ptr<float[]> tile_;
};

}  // namespace

void multiply_transposed(const PanelKernels& kernels, const at::Tensor& dy, const PackedMatrix& w, const at::Tensor& dx) {
  const PackLayout layout = pack_layout(w.spec, w.rows, w.columns);
  const auto* const bytes = w.bytes.const_data_ptr<uint8_t>();
  const int64_t m = dy.size(0), padded = (w.rows + 1) / 2 * 2;
  const ColumnGroups blocks{w.rows, padded, kBlockColumns, (padded + kBlockColumns - 1) / kBlockColumns};
  const GemmResult out(dx, {});
  RowWords words(PanelArithmetic::floats, blocks, std::min(m, kBlockDyRows), 0, false);
  for (int64_t row = 0; row < m; row += kBlockDyRows) {
    words.read(kernels, number_rows(dy, row), std::min(kBlockDyRows, m - row));
    for_parts(layout.groups, 1, [&] {
      auto tiles = std::make_shared<TransposedTiles>(kernels, layout, bytes, blocks, words);
      return [tiles, &out, row](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) tiles->run(g, out, row);
      };
    });
  }
}

}  // namespace zt::packed
