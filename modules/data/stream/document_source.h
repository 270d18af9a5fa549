// Samples of variable length: one record per row, or several packed into a row.
#pragma once

#include <array>

#include "records.h"
#include "stream.h"

namespace zt::data {

enum class PaddingSide : uint8_t { right, left };
constexpr auto words_of(PaddingSide) {
  return std::array{"right", "left"};
}

struct RowOptions {
  int64_t seq = 0;
  int64_t pad = 0;              // token of the positions that no document has
  int64_t ignore_index = -100;  // label of those positions, and of tokens that do not count
  bool pack = false;
  bool numbered = false;  // adds the fields segments and positions also without `pack`
  PaddingSide padding = PaddingSide::right;
  int64_t open_rows = 1;  // with `pack`: rows that can still take a record, see pack_rows
};

// Which records each row has: row i has records[borders[i]] to records[borders[i + 1] - 1].
struct RowPlan {
  std::vector<int64_t> records, borders;
};
// Gives each record, in their order, to the first row in which its positions fit, among the last `open_rows` rows; if it fits in
// none, it begins a row. With one open row, rows have consecutive records. Rows are numbered in the order in which they begin.
// `sizes`: positions of each record, at most `seq`. Without `pack` each record has a row of its own.
RowPlan plan_rows(const std::vector<int64_t>& sizes, const RowOptions& options);

// A row has seq positions: those of one record, or with `pack` of several, and padding. A record never spans rows. Rows are made
// once, so a shuffle permutes rows. Memory: that of the records, and 8 bytes per record and per row.
//
// Fields, int64 [rows, seq]: tokens, labels, and padding (1 at its positions, else 0). With `pack` or `numbered` also segments
// (0, 1, ... per sequence and padding, in the order in which they lie in the row) and positions (from 0 in each segment). Where
// records have two sequences also sequence (2 * the number of the record in the row + side) and side (0 or 1), both -1 at
// padding. The constructor throws Misuse if there is no record, or if `pad` is not below the vocabulary.
class DocumentSource : public SampleSource {
 public:
  DocumentSource(std::unique_ptr<const Records> records, RowOptions options);

  int64_t samples() const override { return static_cast<int64_t>(plan_.borders.size()) - 1; }
  int64_t seq() const override { return options_.seq; }
  Fields make(std::span<const Place> rows, int64_t seed) const override;
  const TokenFile& file() const override { return records_->file(); }
  void add_counts(std::span<int64_t> counts) const override { records_->add_counts(counts); }

 private:
  bool has_pairs() const { return records_->sides() == 2; }
  bool has_numbers() const { return options_.pack || options_.numbered || has_pairs(); }
  int64_t size(int64_t record) const;
  void fill(int64_t sample, size_t row, Fields& fields) const;
  void fill_padding(size_t row, int64_t first, int64_t count, int64_t segment, Fields& fields) const;

  std::unique_ptr<const Records> records_;
  RowOptions options_;
  RowPlan plan_;
};

}  // namespace zt::data
