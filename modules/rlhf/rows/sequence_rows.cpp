#include "rows/sequence_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "zt/base/error.h"

namespace zt::rlhf {

namespace {

constexpr size_t kOpenRows = 64;  // that can still take a sequence

std::span<const int64_t> numbers_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

void check_offsets(const at::Tensor& tokens, const at::Tensor& offsets, const char* name) {
  for (const at::Tensor& tensor : {tokens, offsets}) {
    if (tensor.dim() != 1 || tensor.scalar_type() != at::kLong || !tensor.is_contiguous() || !tensor.is_cpu())
      misuse("the {} of sequences and their offsets must be int64 vectors on the CPU", name);
  }
  const auto numbers = numbers_of(offsets);
  if (numbers.empty() || numbers.front() != 0 || numbers.back() != tokens.numel() || !std::ranges::is_sorted(numbers))
    misuse("the offsets of {} must ascend from 0 to the number of tokens, {}", name, tokens.numel());
}

int64_t size_between(const at::Tensor& offsets, int64_t sequence) {
  const auto* numbers = offsets.const_data_ptr<int64_t>();
  return numbers[sequence + 1] - numbers[sequence];
}

struct PartlyFilledRow {
  int64_t row = 0, used = 0;
};

// Writes the fields of one row from left to right.
class RowWriter {
 public:
  RowWriter(std::map<std::string, at::Tensor>& fields, int64_t row, const SequenceRowOptions& options)
      : fields_(fields), row_(row), options_(options) {}

  int64_t at() const { return at_; }

  void pad(int64_t count) {
    if (count == 0) return;
    fill(count, {{"tokens", 0}, {"labels", options_.ignore_index}, {"padding", 1}, {"sequence", -1}, {"lengths", 0}});
  }
  void add(const Sequences& sequences, int64_t sequence) {
    const int64_t prompt = sequences.prompt_size(sequence), answer = sequences.answer_size(sequence);
    const int64_t begin = at_;
    fill(prompt + answer, {{"labels", options_.ignore_index}, {"padding", 0}, {"sequence", number_++}, {"lengths", answer}});
    const auto tokens = part("tokens", begin, prompt + answer);
    const auto* of_prompt =
        sequences.prompts.const_data_ptr<int64_t>() + sequences.prompt_offsets.const_data_ptr<int64_t>()[sequence];
    const auto* of_answer =
        sequences.answers.const_data_ptr<int64_t>() + sequences.answer_offsets.const_data_ptr<int64_t>()[sequence];
    std::copy_n(of_prompt, prompt, tokens.begin());
    std::copy_n(of_answer, answer, tokens.begin() + prompt);
    std::copy_n(of_answer, answer, part("labels", begin + prompt - 1, answer).begin());
  }

 private:
  std::span<int64_t> part(const char* name, int64_t first, int64_t count) {
    return {fields_.at(name).data_ptr<int64_t>() + row_ * options_.seq + first, static_cast<size_t>(count)};
  }
  void fill(int64_t count, std::initializer_list<std::pair<const char*, int64_t>> values) {
    for (const auto& [name, value] : values) std::ranges::fill(part(name, at_, count), value);
    std::ranges::fill(part("segments", at_, count), segment_++);
    const auto positions = part("positions", at_, count);
    std::iota(positions.begin(), positions.end(), int64_t{0});
    at_ += count;
  }

  std::map<std::string, at::Tensor>& fields_;
  int64_t row_;
  const SequenceRowOptions& options_;
  int64_t at_ = 0, segment_ = 0, number_ = 0;
};

}  // namespace

void Sequences::check() const {
  check_offsets(prompts, prompt_offsets, "prompts");
  check_offsets(answers, answer_offsets, "answers");
  if (prompt_offsets.numel() != answer_offsets.numel())
    misuse("there are {} prompts and {} answers", prompt_offsets.numel() - 1, answer_offsets.numel() - 1);
  for (int64_t sequence = 0; sequence < count(); ++sequence) {
    if (prompt_size(sequence) == 0) misuse("the prompt of sequence {} has no token: a model cannot begin with nothing", sequence);
  }
}

int64_t Sequences::prompt_size(int64_t sequence) const {
  return size_between(prompt_offsets, sequence);
}

int64_t Sequences::answer_size(int64_t sequence) const {
  return size_between(answer_offsets, sequence);
}

std::vector<int64_t> rows_of(const Sequences& sequences, std::span<const int64_t> chosen, const SequenceRowOptions& options) {
  std::vector<int64_t> row_of;
  std::deque<PartlyFilledRow> open;
  int64_t rows = 0;
  for (const int64_t sequence : chosen) {
    if (sequence < 0 || sequence >= sequences.count())
      misuse("there is no sequence {}: the numbers are 0 to {}", sequence, sequences.count() - 1);
    const int64_t size = sequences.size(sequence);
    if (size > options.seq) {
      misuse("a prompt of {} tokens and its answer of {} do not fit in a row of seq = {}: give a larger seq",
             sequences.prompt_size(sequence), sequences.answer_size(sequence), options.seq);
    }
    auto place = std::ranges::find_if(open, [&](const PartlyFilledRow& row) { return row.used + size <= options.seq; });
    if (place == open.end() || options.padding != RowPadding::packed) {
      if (open.size() == kOpenRows) open.pop_front();
      place = open.insert(open.end(), {rows++, 0});
    }
    place->used += size;
    row_of.push_back(place->row);
  }
  return row_of;
}

SequenceRows make_rows(const Sequences& sequences, std::span<const int64_t> chosen, int64_t rows,
                       const SequenceRowOptions& options) {
  const std::vector<int64_t> row_of = rows_of(sequences, chosen, options);
  const int64_t needed = row_of.empty() ? 0 : std::ranges::max(row_of) + 1;
  if (needed > rows) misuse("the sequences need {} rows of {} positions, and there are {}", needed, options.seq, rows);
  std::vector<std::vector<size_t>> of_row(static_cast<size_t>(rows));  // places in `chosen`
  for (size_t i = 0; i < chosen.size(); ++i) of_row[static_cast<size_t>(row_of[i])].push_back(i);

  SequenceRows result;
  for (const char* name : {"tokens", "labels", "segments", "positions", "padding", "sequence", "lengths"})
    result.fields[name] = at::empty({rows, options.seq}, at::kLong);
  std::vector<int64_t> begins(chosen.size());  // numbers of their first positions
  for (int64_t row = 0; row < rows; ++row) {
    RowWriter writer(result.fields, row, options);
    int64_t used = 0;
    for (const size_t i : of_row[static_cast<size_t>(row)]) used += sequences.size(chosen[i]);
    if (options.padding == RowPadding::left) writer.pad(options.seq - used);
    for (const size_t i : of_row[static_cast<size_t>(row)]) {
      begins[i] = row * options.seq + writer.at();
      writer.add(sequences, chosen[i]);
    }
    writer.pad(options.seq - writer.at());
  }
  int64_t labels = 0;
  for (const int64_t sequence : chosen) labels += sequences.answer_size(sequence);
  result.label_places = at::empty({labels}, at::kLong);
  result.last_places = at::empty({static_cast<int64_t>(chosen.size())}, at::kLong);
  auto* place = result.label_places.data_ptr<int64_t>();
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int64_t answer = sequences.answer_size(chosen[i]);
    std::iota(place, place + answer, begins[i] + sequences.prompt_size(chosen[i]) - 1);
    place += answer;
    result.last_places.data_ptr<int64_t>()[i] = begins[i] + sequences.size(chosen[i]) - 1;
  }
  return result;
}

}  // namespace zt::rlhf
