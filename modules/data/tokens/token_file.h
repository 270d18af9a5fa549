// A file of token ids with its companion.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "companion.h"
#include "npy.h"

namespace zt::data {

// The indices [begin, end) of tokens of a file, or of other items.
struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// The part of the data that a stream reads.
enum class Split : uint8_t { train, validation };
Split parse_split(const std::string& name);  // throws Misuse for an unknown name

// Returns the part of n items that belongs to `split`: the last floor(n * fraction) items are for validation, the others for
// training.
IndexRange split_range(int64_t n, double fraction, Split split);

// Threads: const after construction.
// Throws: Fault for a defect of the file or its companion (see NpyFile and read_companion). Every method that reads tokens also
// throws Fault for an id that is not below the vocabulary; find() does not check ids.
class TokenFile {
 public:
  // `vocab` is the number of ids. 0 means the companion's number, or without a companion the largest id + 1, which takes one pass
  // over the file. Throws Misuse if `vocab` and the companion disagree.
  explicit TokenFile(std::string path, int64_t vocab = 0);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return file_.count(); }
  int64_t vocab() const { return vocab_; }
  const std::optional<Companion>& companion() const { return companion_; }
  std::string digest() const { return file_.digest(); }  // tells the tokens of two files apart (NpyFile::digest)

  // Reads the tokens [first, first + out.size()) into `out`.
  void read(int64_t first, std::span<int64_t> out) const;
  // Reads the tokens [first, first + n) into `inputs` and [first + 1, first + n + 1) into `targets`, both of size n.
  void read_shifted(int64_t first, std::span<int64_t> inputs, std::span<int64_t> targets) const;
  // Adds to counts[id] how often the id occurs in `range`. Requires counts of size vocab.
  void add_counts(IndexRange range, std::span<int64_t> counts) const;
  // Returns the indices at which `token` occurs, ascending.
  std::vector<int64_t> find(int64_t token) const;

 private:
  int64_t find_vocab(int64_t wanted) const;
  void check_companion() const;
  [[noreturn]] void refuse_tokens(IndexRange range) const;

  NpyFile file_;
  std::optional<Companion> companion_;
  int64_t vocab_;
};

// Returns the counts divided by their sum.
std::vector<double> frequencies(std::span<const int64_t> counts);
// Returns the entropy, in nats per token, of the distribution given by `frequencies`. It is the loss of the best model that
// ignores all context.
double entropy(std::span<const double> frequencies);

}  // namespace zt::data
