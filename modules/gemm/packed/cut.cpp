#include "packed/cut.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <numeric>

#include "packed/layout.h"
#include "zt/base/error.h"

namespace zt::packed {

namespace {

constexpr int64_t kUnitBytes = 64;  // of a unit: 4 bytes for each row of a panel
constexpr int64_t kRowBytes = 4;    // of a unit

// Returns the columns of a unit.
int64_t unit_columns(const PackLayout& layout) {
  return layout.group * kUnitBytes / layout.code_bytes;
}

// Copies rows of one matrix to another one.
class RowCopy {
 public:
  RowCopy(const PackLayout& from, const uint8_t* source, const PackLayout& to, uint8_t* target, int64_t first_column)
      : from_(from), source_(source), to_(to), target_(target), first_column_(first_column) {}

  void copy(int64_t from_row, int64_t to_row) const {
    const int64_t columns = unit_columns(to_), units = to_.padded_columns / columns, first = first_column_ / columns;
    for (int64_t unit = 0; unit < units; ++unit)
      std::memcpy(target_ + code(to_, to_row, unit), source_ + code(from_, from_row, first + unit), kRowBytes);
    const int64_t scales = (to_.group_bytes - to_.code_bytes) / kPanelRows;  // bytes of a row, in fields of `size`
    const int64_t size = to_.spec.format == PackFormat::nf4 ? scales : 2;
    for (int64_t g = 0; g < (scales > 0 ? to_.groups : 0); ++g) {
      for (int64_t field = 0; field < scales / size; ++field)
        std::memcpy(target_ + scale(to_, to_row, g, field, size),
                    source_ + scale(from_, from_row, first_column_ / from_.group + g, field, size), static_cast<size_t>(size));
    }
  }

 private:
  static int64_t code(const PackLayout& layout, int64_t row, int64_t unit) {
    const int64_t of_group = layout.group / unit_columns(layout);
    return layout.group_offset(row / kPanelRows, unit / of_group) + unit % of_group * kUnitBytes + row % kPanelRows * kRowBytes;
  }
  static int64_t scale(const PackLayout& layout, int64_t row, int64_t g, int64_t field, int64_t size) {
    return layout.group_offset(row / kPanelRows, g) + layout.code_bytes + (field * kPanelRows + row % kPanelRows) * size;
  }

  const PackLayout& from_;
  const uint8_t* const source_;
  const PackLayout& to_;
  uint8_t* const target_;
  const int64_t first_column_;
};

void check_cut(const PackLayout& whole, std::span<const Share> rows, Share columns) {
  const int64_t step = whole.spec.format == PackFormat::panels ? 2 : whole.group;
  const bool is_end = columns.end() == whole.columns;
  if (columns.begin % step != 0 || (columns.count % step != 0 && !is_end))
    misuse("columns {} to {} of a packed matrix cannot be cut out: they are no multiple of {}", columns.begin, columns.end(),
           step);
  if (!whole.is_nested()) return;
  for (const Share& range : rows) {
    const bool is_last = range.end() == whole.rows;
    if (columns.count != whole.columns || range.begin * whole.groups % kNf4Block != 0 ||
        (range.count * whole.groups % kNf4Block != 0 && !is_last))
      misuse(
          "a part of a matrix in nf4 has the same values only if it is made of whole blocks of {} groups, in which scales are "
          "quantised: take int4, give nested = false, or do not cut the matrix over ranks",
          kNf4Block);
  }
}

// Copies the tables of nested nf4, with the blocks of the rows.
void copy_tables(const PackLayout& from, const uint8_t* source, const PackLayout& to, uint8_t* target,
                 std::span<const Share> rows) {
  constexpr int64_t kHead = kNf4MapEntries * int64_t{sizeof(float)};
  constexpr int64_t kBlock = sizeof(Nf4Block);
  std::memcpy(target + to.tables_offset(), source + from.tables_offset(), kHead);
  int64_t next = to.tables_offset() + kHead;
  for (const Share& range : rows) {
    const int64_t first = range.begin * from.groups / kNf4Block;
    const int64_t bytes = (range.count * from.groups + kNf4Block - 1) / kNf4Block * kBlock;
    std::memcpy(target + next, source + from.tables_offset() + kHead + first * kBlock, static_cast<size_t>(bytes));
    next += bytes;
  }
}

}  // namespace

PackedMatrix cut_matrix(const PackedMatrix& whole, std::span<const Share> rows, Share columns) {
  const PackLayout from = pack_layout(whole.spec, whole.rows, whole.columns);
  check_cut(from, rows, columns);
  const int64_t count =
      std::accumulate(rows.begin(), rows.end(), int64_t{0}, [](int64_t sum, const Share& r) { return sum + r.count; });
  const PackLayout to = pack_layout(whole.spec, count, columns.count);
  PackedMatrix part{whole.spec, count, columns.count, at::zeros({to.bytes}, at::kByte)};
  const auto* const source = whole.bytes.const_data_ptr<uint8_t>();
  auto* const target = part.bytes.mutable_data_ptr<uint8_t>();
  const RowCopy copy(from, source, to, target, columns.begin);
  int64_t next = 0;
  for (const Share& range : rows) {
    for (int64_t row = range.begin; row < range.end(); ++row) copy.copy(row, next++);
  }
  if (from.is_nested()) copy_tables(from, source, to, target, rows);
  return part;
}

}  // namespace zt::packed
