#include "token_file.h"

#include <cmath>
#include <numeric>

#include "zt/error.h"

namespace zt::data {

Split parse_split(const std::string& name) {
  if (name == "train") return Split::train;
  if (name == "validation") return Split::validation;
  misuse("split must be 'train' or 'validation', got '{}'", name);
}

Range split_range(int64_t n, double fraction, Split split) {
  const auto border = n - static_cast<int64_t>(static_cast<double>(n) * fraction);
  return split == Split::train ? Range{0, border} : Range{border, n};
}

TokenFile::TokenFile(std::string path, int64_t vocab)
    : file_(std::move(path)), companion_(read_companion(file_.path())), vocab_(find_vocab(vocab)) {
  if (item_size(file_.type()) > 4) {
    fault("'{}' has 64-bit numbers, where tokens are uint16 or uint32: make it again with scripts/tokenize.lua", file_.path());
  }
  check_companion();
}

int64_t TokenFile::find_vocab(int64_t wanted) const {
  if (wanted > 0) return wanted;
  if (companion_) return companion_->vocab;
  return file_.visit([](auto values) {
    return values.empty() ? int64_t{1} : static_cast<int64_t>(*std::max_element(values.begin(), values.end())) + 1;
  });
}

void TokenFile::check_companion() const {
  if (!companion_) return;
  if (companion_->vocab != vocab_) {
    misuse("vocab is {}, but '{}' was made with a vocabulary of {}: leave the option out, or make the tokens again", vocab_,
           path(), companion_->vocab);
  }
  if (companion_->tokens != size()) {
    fault(
        "'{}' holds {} tokens, but its companion '{}' says {}: they are not from one run. Make both again with "
        "scripts/tokenize.lua",
        path(), size(), beside(path(), ".json"), companion_->tokens);
  }
}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  int64_t largest = 0;
  file_.visit([&](auto values) {
    const auto part = values.subspan(static_cast<size_t>(first), out.size());
    for (size_t i = 0; i < part.size(); ++i) {
      out[i] = static_cast<int64_t>(part[i]);
      largest = std::max(largest, out[i]);
    }
  });
  if (largest >= vocab_) refuse_tokens({first, first + static_cast<int64_t>(out.size())});
}

void TokenFile::add_counts(Range range, std::span<int64_t> counts) const {
  file_.visit([&](auto values) {
    for (const auto token : values.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()))) {
      if (static_cast<uint64_t>(token) >= counts.size()) refuse_tokens(range);
      ++counts[token];
    }
  });
}

std::vector<int64_t> TokenFile::find(int64_t token) const {
  std::vector<int64_t> places;
  file_.visit([&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(values[i]) == token) places.push_back(static_cast<int64_t>(i));
    }
  });
  return places;
}

void TokenFile::refuse_tokens(Range range) const {
  file_.visit([&](auto values) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const auto token = static_cast<uint64_t>(values[static_cast<size_t>(i)]);
      if (token >= static_cast<uint64_t>(vocab_)) {
        fault(
            "token {} of '{}' is {}, but the vocabulary has {} ids: the file is damaged, or made with another tokenizer. "
            "Make it again with scripts/tokenize.lua, or give the right vocab",
            i, path(), token, vocab_);
      }
    }
  });
  fault("'{}' changed while it was read: write token files to a new name and rename them", path());
}

double entropy(std::span<const int64_t> counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double sum = 0;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / total;
    sum -= p * std::log(p);
  }
  return sum;
}

}  // namespace zt::data
