// A file of token ids and what is known about it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "companion.h"
#include "npy.h"

namespace zt::data {

// Tokens [begin, end) of a file, or any other range of whole numbers.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Which part of the data a stream reads.
enum class Split : uint8_t { train, validation };
Split parse_split(const std::string& name);

// The part of n items that belongs to `split`: validation is the last floor(n * fraction) of them, train the others.
Range split_range(int64_t n, double fraction, Split split);

// Threads: const after construction. Errors: Fault for a defect of the file or its companion (NpyFile, read_companion) and for
// a token id that is not below the vocabulary, which is checked where tokens are read.
class TokenFile {
 public:
  // `vocab` 0 means: what the companion says, or without one the largest id + 1 (one pass over the file).
  // Misuse when `vocab` and the companion disagree.
  explicit TokenFile(std::string path, int64_t vocab = 0);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return file_.count(); }
  int64_t vocab() const { return vocab_; }
  const std::optional<Companion>& companion() const { return companion_; }

  // Tokens [first, first + out.size()), widened.
  void read(int64_t first, std::span<int64_t> out) const;
  // Tokens [first, first + n) into `inputs` and [first + 1, first + n + 1) into `targets`, both of size n, in one pass.
  void read_shifted(int64_t first, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  // Adds to counts, [vocab], how often each id occurs in `range`.
  void add_counts(Range range, std::span<int64_t> counts) const;
  // Places of `token`, ascending.
  std::vector<int64_t> find(int64_t token) const;

 private:
  int64_t find_vocab(int64_t wanted) const;
  void check_companion() const;
  [[noreturn]] void refuse_tokens(Range range) const;

  NpyFile file_;
  std::optional<Companion> companion_;
  int64_t vocab_;
};

// Entropy, in nats per token, of a distribution given by counts: the loss of the best model that ignores all context.
double entropy(std::span<const int64_t> counts);

}  // namespace zt::data
