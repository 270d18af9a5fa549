#include "document_source.h"

#include <ATen/ops/empty.h>

#include <deque>
#include <numeric>

#include "zt/base/error.h"

namespace zt::data {

namespace {

// Part of a row of a field.
std::span<int64_t> part_of_row(Fields& fields, const char* name, size_t row, int64_t first, int64_t count) {
  const at::Tensor& matrix = fields.at(name);
  return {matrix.data_ptr<int64_t>() + static_cast<int64_t>(row) * matrix.size(1) + first, static_cast<size_t>(count)};
}

struct OpenRow {
  int64_t row = 0, used = 0;
};

}  // namespace

RowPlan plan_rows(const std::vector<int64_t>& sizes, const RowOptions& options) {
  std::vector<int64_t> row_of;
  std::deque<OpenRow> open;
  int64_t rows = 0;
  for (const int64_t size : sizes) {
    auto place = std::ranges::find_if(open, [&](const OpenRow& row) { return row.used + size <= options.seq; });
    if (place == open.end() || !options.pack) {
      if (static_cast<int64_t>(open.size()) == options.open_rows) open.pop_front();
      place = open.insert(open.end(), {rows++, 0});
    }
    place->used += size;
    row_of.push_back(place->row);
  }
  // Sort the records by their rows, stably: count those of each row first.
  RowPlan plan{std::vector<int64_t>(sizes.size()), std::vector<int64_t>(static_cast<size_t>(rows) + 1)};
  for (const int64_t row : row_of) ++plan.borders[static_cast<size_t>(row) + 1];
  std::partial_sum(plan.borders.begin(), plan.borders.end(), plan.borders.begin());
  std::vector<int64_t> next(plan.borders.begin(), plan.borders.end() - 1);
  for (size_t record = 0; record < row_of.size(); ++record) {
    plan.records[static_cast<size_t>(next[static_cast<size_t>(row_of[record])]++)] = static_cast<int64_t>(record);
  }
  return plan;
}

DocumentSource::DocumentSource(std::unique_ptr<const Records> records, RowOptions options)
    : records_(std::move(records)), options_(options) {
  if (records_->count() == 0) misuse("'{}' has no records for this stream", file().path());
  if (options_.pad < 0 || options_.pad >= file().vocab()) {
    misuse("pad is {}, which is not a token: the vocabulary has the ids 0 to {}", options_.pad, file().vocab() - 1);
  }
  std::vector<int64_t> sizes;
  for (int64_t record = 0; record < records_->count(); ++record) sizes.push_back(size(record));
  plan_ = plan_rows(sizes, options_);
}

int64_t DocumentSource::size(int64_t record) const {
  int64_t total = 0;
  for (int side = 0; side < records_->sides(); ++side) total += records_->positions(record, side);
  return total;
}

Fields DocumentSource::make(std::span<const Place> rows, int64_t) const {
  std::vector<const char*> names{"tokens", "labels", "padding"};
  if (has_numbers()) names.insert(names.end(), {"segments", "positions"});
  if (has_pairs()) names.insert(names.end(), {"sequence", "side"});
  Fields fields;
  for (const char* name : names) fields[name] = at::empty({static_cast<int64_t>(rows.size()), options_.seq}, at::kLong);
  for (size_t row = 0; row < rows.size(); ++row) fill(rows[row].sample, row, fields);
  return fields;
}

void DocumentSource::fill(int64_t sample, size_t row, Fields& fields) const {
  const std::span<const int64_t> records(plan_.records.begin() + plan_.borders[static_cast<size_t>(sample)],
                                         plan_.records.begin() + plan_.borders[static_cast<size_t>(sample) + 1]);
  int64_t rest = options_.seq, at = 0, segment = 0;
  for (const int64_t record : records) rest -= size(record);
  const bool is_left = options_.padding == PaddingSide::left && rest > 0;
  if (is_left) fill_padding(row, at, rest, segment++, fields), at = rest;
  for (size_t i = 0; i < records.size(); ++i) {
    for (int side = 0; side < records_->sides(); ++side) {
      const int64_t count = records_->positions(records[i], side);
      const auto part = [&](const char* name) { return part_of_row(fields, name, row, at, count); };
      records_->read(records[i], side, options_.ignore_index, part("tokens"), part("labels"));
      std::ranges::fill(part("padding"), 0);
      if (has_numbers()) {
        std::ranges::fill(part("segments"), segment++);
        const auto positions = part("positions");
        std::iota(positions.begin(), positions.end(), int64_t{0});
      }
      if (has_pairs()) {
        std::ranges::fill(part("sequence"), 2 * static_cast<int64_t>(i) + side);
        std::ranges::fill(part("side"), side);
      }
      at += count;
    }
  }
  if (!is_left) fill_padding(row, at, rest, segment, fields);
}

void DocumentSource::fill_padding(size_t row, int64_t first, int64_t count, int64_t segment, Fields& fields) const {
  const auto part = [&](const char* name) { return part_of_row(fields, name, row, first, count); };
  std::ranges::fill(part("tokens"), options_.pad);
  std::ranges::fill(part("labels"), options_.ignore_index);
  std::ranges::fill(part("padding"), 1);
  if (has_numbers()) {
    std::ranges::fill(part("segments"), segment);
    const auto positions = part("positions");
    std::iota(positions.begin(), positions.end(), int64_t{0});
  }
  if (has_pairs()) {
    for (const char* name : {"sequence", "side"}) std::ranges::fill(part(name), -1);
  }
}

}  // namespace zt::data
