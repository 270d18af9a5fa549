#include "token_file.h"

#include <cmath>
#include <numeric>

#include "zt/base/error.h"

namespace zt::data {

Split parse_split(const std::string& name) {
  if (name == "train") return Split::train;
  if (name == "validation") return Split::validation;
  misuse("split must be 'train' or 'validation', got '{}'", name);
}

IndexRange split_range(int64_t n, double fraction, Split split) {
  const auto border = n - static_cast<int64_t>(static_cast<double>(n) * fraction);
  return split == Split::train ? IndexRange{0, border} : IndexRange{border, n};
}

TokenFile::TokenFile(std::string path, int64_t vocab)
    : file_(std::move(path)), companion_(read_companion(file_.path())), vocab_(find_vocab(vocab)) {
  if (file_.type() != NpyType::u16 && file_.type() != NpyType::u32) {
    fault("'{}' has {}-bit numbers, where tokens are uint16 or uint32: make it again with ztoolkit tokenize", file_.path(),
          item_size(file_.type()) * 8);
  }
  check_companion();
}

int64_t TokenFile::find_vocab(int64_t wanted) const {
  if (wanted > 0) return wanted;
  if (companion_) return companion_->vocab;
  uint64_t largest = 0;
  file_.visit(0, size(), [&](auto values, int64_t) {
    largest = std::max(largest, static_cast<uint64_t>(*std::max_element(values.begin(), values.end())));
  });
  return size() == 0 ? 1 : static_cast<int64_t>(largest) + 1;
}

void TokenFile::check_companion() const {
  if (!companion_) return;
  if (companion_->vocab != vocab_) {
    misuse("vocab is {}, but '{}' was made with a vocabulary of {}: leave the option out, or make the tokens again", vocab_,
           path(), companion_->vocab);
  }
  if (companion_->tokens != size()) {
    fault(
        "'{}' holds {} tokens, but its companion '{}' says {}: the two files are not from one run. Make both again with "
        "ztoolkit tokenize",
        path(), size(), beside(path(), ".json"), companion_->tokens);
  }
}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  int64_t largest = 0;
  file_.visit(first, static_cast<int64_t>(out.size()), [&](auto values, int64_t begin) {
    int64_t* to = out.data() + (begin - first);
    for (const auto token : values) {
      *to++ = static_cast<int64_t>(token);
      largest = std::max(largest, static_cast<int64_t>(token));
    }
  });
  if (largest >= vocab_) refuse_tokens({first, first + static_cast<int64_t>(out.size())});
}

void TokenFile::read_shifted(int64_t first, std::span<int64_t> inputs, std::span<int64_t> targets) const {
  std::vector<int64_t> tokens(inputs.size() + 1);
  read(first, tokens);
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
}

void TokenFile::add_counts(IndexRange range, std::span<int64_t> counts) const {
  file_.visit(range.begin, range.size(), [&](auto values, int64_t) {
    for (const auto token : values) {
      if (static_cast<uint64_t>(token) >= counts.size()) refuse_tokens(range);
      ++counts[token];
    }
  });
}

std::vector<int64_t> TokenFile::find(int64_t token) const {
  std::vector<int64_t> places;
  file_.visit(0, size(), [&](auto values, int64_t begin) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(values[i]) == token) places.push_back(begin + static_cast<int64_t>(i));
    }
  });
  return places;
}

void TokenFile::refuse_tokens(IndexRange range) const {
  file_.visit(range.begin, range.size(), [&](auto values, int64_t begin) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto token = static_cast<uint64_t>(values[i]);
      if (token < static_cast<uint64_t>(vocab_)) continue;
      fault(
          "token {} of '{}' is {}, but the vocabulary has {} ids: the file is damaged, or made with another tokenizer. "
          "Make it again with ztoolkit tokenize, or give the right vocab",
          begin + static_cast<int64_t>(i), path(), token, vocab_);
    }
  });
  fault("'{}' changed while it was read: write token files to a new name and rename them", path());
}

std::vector<double> frequencies(std::span<const int64_t> counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  std::vector<double> all;
  for (const int64_t count : counts) all.push_back(total > 0 ? static_cast<double>(count) / total : 0);
  return all;
}

double entropy(std::span<const double> frequencies) {
  double sum = 0;
  for (const double p : frequencies) {
    if (p > 0) sum -= p * std::log(p);
  }
  return sum;
}

}  // namespace zt::data
