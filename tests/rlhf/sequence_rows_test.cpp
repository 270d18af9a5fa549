#include "rows/sequence_rows.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "zt/base/error.h"

namespace zt::rlhf {
namespace {

using Integers = std::vector<int64_t>;

at::Tensor tensor_of(const Integers& numbers) {
  return at::tensor(numbers, at::kLong);
}

Integers integers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

Integers offsets_of(const Integers& sizes) {
  Integers offsets{0};
  for (const int64_t size : sizes) offsets.push_back(offsets.back() + size);
  return offsets;
}

// Sequences whose tokens are 1, 2, 3, ... over the prompts and 1001, 1002, ... over the answers.
Sequences sequences_of(const Integers& prompts, const Integers& answers) {
  const Integers prompt_offsets = offsets_of(prompts), answer_offsets = offsets_of(answers);
  Integers of_prompts, of_answers;
  for (int64_t i = 1; i <= prompt_offsets.back(); ++i) of_prompts.push_back(i);
  for (int64_t i = 1; i <= answer_offsets.back(); ++i) of_answers.push_back(1000 + i);
  return {tensor_of(of_prompts), tensor_of(prompt_offsets), tensor_of(of_answers), tensor_of(answer_offsets)};
}

SequenceRowOptions options_of(int64_t seq, RowPadding padding = RowPadding::packed) {
  SequenceRowOptions options;
  options.seq = seq, options.padding = padding;
  return options;
}

template <class Fn>
void expect_misuse(const char* text, Fn fn) {
  try {
    fn();
    FAIL() << "no error, but wanted: " << text;
  } catch (const Misuse& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(RowsOf, PutsEachInTheFirstRowWithRoom) {
  const Sequences sequences = sequences_of({3, 5, 2, 1, 4}, {2, 2, 1, 0, 4});  // 5, 7, 3, 1, 8
  EXPECT_EQ(rows_of(sequences, Integers{0, 1, 2, 3, 4}, options_of(8)), (Integers{0, 1, 0, 1, 2}));
  EXPECT_EQ(rows_of(sequences, Integers{4, 3, 2, 2}, options_of(9)), (Integers{0, 0, 1, 1}));
  EXPECT_EQ(rows_of(sequences, Integers{}, options_of(8)), Integers{});
  for (const RowPadding padding : {RowPadding::left, RowPadding::right})
    EXPECT_EQ(rows_of(sequences, Integers{3, 3, 2}, options_of(8, padding)), (Integers{0, 1, 2}));
}

// The oldest row is closed when a 65th is opened.
TEST(RowsOf, LooksAtTheLast64Rows) {
  const Sequences sequences = sequences_of({3, 1}, {3, 1});  // 6, 2
  for (const auto& [full, wanted] : {std::pair{64, 0}, {65, 1}, {66, 2}}) {
    Integers chosen(static_cast<size_t>(full), 0);
    chosen.push_back(1);
    EXPECT_EQ(rows_of(sequences, chosen, options_of(8)).back(), wanted) << full;
  }
}

TEST(RowsOf, RefusesWhatDoesNotFitAndNumbersOfNone) {
  const Sequences sequences = sequences_of({3, 6}, {2, 3});
  expect_misuse("a prompt of 6 tokens and its answer of 3 do not fit in a row of seq = 8", [&] {
    rows_of(sequences, Integers{0, 1}, options_of(8));
  });
  for (const int64_t number : {-1, 2})
    expect_misuse("there is no sequence", [&] { rows_of(sequences, Integers{number}, options_of(9)); });
  expect_misuse("need 2 rows of 9 positions, and there are 1", [&] { make_rows(sequences, Integers{0, 1}, 1, options_of(9)); });
}

TEST(Sequences, RefusesDamagedOffsets) {
  const auto refused = [](const char* text, Sequences sequences) { expect_misuse(text, [&] { sequences.check(); }); };
  const Sequences good = sequences_of({2, 3}, {1, 0});
  good.check();
  for (const Integers& offsets : {Integers{}, {1, 2, 5}, {0, 2, 4}, {0, 2, 6}, {0, 6, 5}, {0, -1, 5}}) {
    refused("the offsets of prompts must ascend", {good.prompts, tensor_of(offsets), good.answers, good.answer_offsets});
    refused("the offsets of answers must ascend", {good.prompts, good.prompt_offsets, good.prompts, tensor_of(offsets)});
  }
  refused("the prompt of sequence 1 has no token", {good.prompts, tensor_of({0, 5, 5}), good.answers, good.answer_offsets});
  refused("there are 2 prompts and 1 answers", {good.prompts, good.prompt_offsets, good.answers, tensor_of({0, 1})});
  refused("int64 vectors", {good.prompts.to(at::kDouble), good.prompt_offsets, good.answers, good.answer_offsets});
  refused("int64 vectors", {good.prompts, good.prompt_offsets.to(at::kInt), good.answers, good.answer_offsets});
  refused("int64 vectors", {good.prompts, good.prompt_offsets, good.answers, good.answer_offsets.unsqueeze(0)});
  const at::Tensor doubled = tensor_of({0, 0, 2, 2, 5, 5});
  refused("int64 vectors", {good.prompts, doubled.slice(0, 0, 6, 2), good.answers, good.answer_offsets});
}

// Fills the fields of one row place by place, from the words of the header alone. at: where the row's first sequence begins.
void write_slowly(std::map<std::string, Integers>& fields, const Sequences& sequences, const Integers& of_row, int64_t at,
                  const SequenceRowOptions& options) {
  int64_t segment = 0, number = 0;
  const auto add = [&](const char* name, int64_t value) { fields[name].push_back(value); };
  const auto pad = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      add("tokens", 0), add("labels", options.ignore_index), add("segments", segment), add("positions", i);
      add("padding", 1), add("sequence", -1), add("lengths", 0);
    }
    segment += count > 0;
  };
  pad(at);
  for (const int64_t each : of_row) {
    const int64_t prompt = sequences.prompt_size(each), answer = sequences.answer_size(each), size = prompt + answer;
    const auto token = [&](int64_t i) {
      return i < prompt ? sequences.prompts[sequences.prompt_offsets[each].item<int64_t>() + i].item<int64_t>()
                        : sequences.answers[sequences.answer_offsets[each].item<int64_t>() + i - prompt].item<int64_t>();
    };
    for (int64_t i = 0; i < size; ++i) {
      const bool is_label = i + 1 >= prompt && i + 1 < size;
      add("tokens", token(i)), add("labels", is_label ? token(i + 1) : options.ignore_index), add("segments", segment);
      add("positions", i), add("padding", 0), add("sequence", number), add("lengths", answer);
    }
    at += size, ++segment, ++number;
  }
  pad(options.seq - at);
}

// The first row of the last 64 that has room, by trying them all.
Integers slow_rows(const Sequences& sequences, const Integers& chosen, const SequenceRowOptions& options) {
  Integers row_of, used;
  for (const int64_t each : chosen) {
    size_t row = used.size() > 64 ? used.size() - 64 : 0;
    while (row < used.size() && (options.padding != RowPadding::packed || used[row] + sequences.size(each) > options.seq)) ++row;
    if (row == used.size()) used.push_back(0);
    used[row] += sequences.size(each);
    row_of.push_back(static_cast<int64_t>(row));
  }
  return row_of;
}

// Compares make_rows with the slow reference, and checks that each place has what it should.
void check_case(const Sequences& sequences, const Integers& chosen, int64_t more_rows, const SequenceRowOptions& options) {
  const Integers row_of = slow_rows(sequences, chosen, options);
  ASSERT_EQ(rows_of(sequences, chosen, options), row_of);
  const int64_t rows = (row_of.empty() ? 0 : std::ranges::max(row_of) + 1) + more_rows;
  std::map<std::string, Integers> wanted;
  for (int64_t row = 0; row < rows; ++row) {
    Integers of_row;
    int64_t used = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (row_of[i] == row) of_row.push_back(chosen[i]), used += sequences.size(chosen[i]);
    }
    ASSERT_LE(used, options.seq);
    write_slowly(wanted, sequences, of_row, options.padding == RowPadding::left ? options.seq - used : 0, options);
  }
  const SequenceRows made = make_rows(sequences, chosen, rows, options);
  ASSERT_EQ(made.fields.size(), 7U);
  for (const auto& [name, field] : made.fields) {
    ASSERT_EQ(field.sizes(), (at::IntArrayRef{rows, options.seq})) << name;
    ASSERT_EQ(integers_of(field), wanted[name]) << name;
  }
  const Integers labels = integers_of(made.fields.at("labels")), tokens = integers_of(made.fields.at("tokens"));
  const Integers label_places = integers_of(made.label_places), last_places = integers_of(made.last_places);
  ASSERT_EQ(std::set<int64_t>(label_places.begin(), label_places.end()).size(), label_places.size());
  size_t place = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const int64_t first = sequences.answer_offsets[chosen[i]].item<int64_t>();
    for (int64_t t = 0; t < sequences.answer_size(chosen[i]); ++t, ++place)
      ASSERT_EQ(labels[static_cast<size_t>(label_places.at(place))], sequences.answers[first + t].item<int64_t>());
    const bool has_answer = sequences.answer_size(chosen[i]) > 0;
    const at::Tensor& text = has_answer ? sequences.answers : sequences.prompts;
    const at::Tensor& ends = has_answer ? sequences.answer_offsets : sequences.prompt_offsets;
    const int64_t last = text[ends[chosen[i] + 1].item<int64_t>() - 1].item<int64_t>();
    ASSERT_EQ(tokens[static_cast<size_t>(last_places.at(i))], last);
  }
  ASSERT_EQ(place, label_places.size());
}

TEST(MakeRows, AreThoseOfASlowReference) {
  std::mt19937 random(2);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int round = 0; round < 150; ++round) {
    const int64_t count = round < 10 ? 200 : draw(1, 12);
    Integers prompts, answers, chosen;
    for (int64_t i = 0; i < count; ++i) {
      prompts.push_back(draw(1, 6)), answers.push_back(draw(0, 5));
      if (round < 10 || draw(0, 2) > 0) chosen.push_back(i);
    }
    std::shuffle(chosen.begin(), chosen.end(), random);
    SequenceRowOptions options = options_of(draw(11, 24), static_cast<RowPadding>(round % 3));
    options.ignore_index = round % 2 ? -100 : -1;
    check_case(sequences_of(prompts, answers), chosen, draw(0, 2), options);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(MakeRows, OfNoSequenceArePadding) {
  check_case(sequences_of({2}, {1}), {}, 2, options_of(4));
  check_case(sequences_of({}, {}), {}, 0, options_of(4));
}

}  // namespace
}  // namespace zt::rlhf
