#include "check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "hdf5/names.h"

namespace zt::ckpt {

namespace {

using Problem = std::optional<std::string>;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::optional<int64_t> sum(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The number of elements of the boxes together, if they lie in the shape.
std::optional<int64_t> boxes_numel(const std::vector<Box>& boxes, const std::vector<int64_t>& shape) {
  std::optional<int64_t> total = 0;
  for (const Box& box : boxes) {
    if (box.begin.size() != shape.size() || box.end.size() != shape.size()) return std::nullopt;
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (box.begin[d] < 0 || box.begin[d] > box.end[d] || box.end[d] > shape[d]) return std::nullopt;
      sizes.push_back(box.end[d] - box.begin[d]);
    }
    total = sum(*total, *numel_of(sizes));
    if (!total) return std::nullopt;
  }
  return total;
}

Problem problem_of(const SavedPiece& piece, const SavedTensor& tensor, const std::vector<SavedShard>& shards) {
  const Region& region = piece.region;
  if (piece.shard < 0 || piece.shard >= static_cast<int64_t>(shards.size()))
    return fmt::format("it is in shard {} of {}", piece.shard, shards.size());
  const auto numel = boxes_numel(region.boxes, tensor.shape);
  if (!numel || region.boxes.empty()) return fmt::format("its boxes are not parts of [{}]", fmt::join(tensor.shape, ", "));
  if (region.first < 0 || region.count < 0 || region.first > *numel || region.count > *numel - region.first)
    return fmt::format("its boxes have {} elements, and {} from {} on are meant", *numel, region.count, region.first);
  const auto item = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const int64_t size = shards[static_cast<size_t>(piece.shard)].bytes;
  if (piece.offset < 0 || piece.offset > size || region.count > (size - piece.offset) / item)
    return fmt::format("its {} elements from byte {} on are not in the {} bytes of {}", region.count, piece.offset, size,
                       shards[static_cast<size_t>(piece.shard)].file);
  const int64_t blocks = checksum_blocks(region.count * item);
  if (static_cast<int64_t>(piece.checksums.size()) != blocks)
    return fmt::format("it has {} checksums and {} blocks", piece.checksums.size(), blocks);
  return std::nullopt;
}

bool is_dtype_saved(at::ScalarType dtype) {
  constexpr at::ScalarType kSaved[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                       at::kShort, at::kInt,    at::kLong, at::kByte,     at::kBool};
  return std::find(std::begin(kSaved), std::end(kSaved), dtype) != std::end(kSaved);
}

Problem problem_of(const SavedTensor& tensor, const std::vector<SavedShard>& shards) {
  if (!is_dtype_saved(tensor.dtype)) return fmt::format("its dtype is {}", c10::toString(tensor.dtype));
  if (!tensor.attributes.get_if<Value::Table>())
    return "its attributes are " + tensor.attributes.type_name() + " instead of a table";
  if (tensor.shape.size() > kMostDims) return fmt::format("it has {} dims, HDF5 allows {}", tensor.shape.size(), kMostDims);
  const auto numel = numel_of(tensor.shape);
  if (!numel) return fmt::format("its shape is [{}]", fmt::join(tensor.shape, ", "));
  int64_t stored = 0;
  for (size_t i = 0; i < tensor.pieces.size(); ++i) {
    if (const Problem problem = problem_of(tensor.pieces[i], tensor, shards)) return fmt::format("piece {}: {}", i, *problem);
    const int64_t count = tensor.pieces[i].region.count;
    if (count > *numel - stored) return fmt::format("its pieces have more than its {} elements", *numel);
    stored += count;
  }
  if (stored != *numel) return fmt::format("{} of its {} elements are stored", stored, *numel);
  return std::nullopt;
}

Problem problem_of(const std::vector<SavedShard>& shards) {
  std::set<std::string> files;
  for (const SavedShard& shard : shards) {
    if (!is_shard_file(shard.file)) return fmt::format("'{}' is no name of a shard: '{}' is one", shard.file, shard_file(0));
    if (!files.insert(shard.file).second) return fmt::format("the shard {} is named twice", shard.file);
    if (shard.bytes < 0) return fmt::format("{} has {} bytes", shard.file, shard.bytes);
  }
  return std::nullopt;
}

// Names are paths of one tree, in which a tensor or value is a leaf.
class Names {
 public:
  Problem add(const std::string& name) {
    const std::string path = encode_name(name);
    if (name.empty()) return "the empty name";
    if (path.size() > kLongestName) return fmt::format("a name of {} bytes, {} are allowed", path.size(), kLongestName);
    if (path == "index" || path.starts_with("index/")) return fmt::format("the name '{}': 'index' is taken", name);
    if (!leaves_.insert(path).second) return fmt::format("two of name '{}'", name);
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      groups_.insert(path.substr(0, slash));
    return std::nullopt;
  }

  Problem conflict() const {
    for (const std::string& leaf : leaves_) {
      if (groups_.contains(leaf)) return fmt::format("'{}' and something below it", leaf);
    }
    return std::nullopt;
  }

 private:
  std::set<std::string> leaves_, groups_;
};

Problem problem_of_names(const Index& index) {
  Names names;
  for (const SavedTensor& tensor : index.tensors) {
    if (Problem problem = names.add(tensor.name)) return problem;
  }
  const auto* values = index.values.get_if<Value::Table>();
  if (!values) return "its values are " + index.values.type_name() + " instead of a table";
  for (const auto& [name, value] : *values) {
    if (Problem problem = names.add(name)) return problem;
  }
  return names.conflict();
}

}  // namespace

std::string shard_file(int64_t rank) {
  return fmt::format("shards/rank_{:05}.h5", rank);
}

bool is_shard_file(std::string_view file) {
  constexpr std::string_view kBefore = "shards/rank_", kAfter = ".h5";
  if (!file.starts_with(kBefore) || !file.ends_with(kAfter) || file.size() < kBefore.size() + kAfter.size()) return false;
  const std::string_view digits = file.substr(kBefore.size(), file.size() - kBefore.size() - kAfter.size());
  const bool is_number = digits.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number && digits.size() >= 5 && digits.size() <= 9 && (digits.size() == 5 || digits[0] != '0');
}

std::optional<int64_t> numel_of(const std::vector<int64_t>& shape) {
  int64_t product = 1, without_zeros = 1;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && without_zeros > kMost / size)) return std::nullopt;
    without_zeros *= std::max<int64_t>(size, 1);
    product *= size;
  }
  return product;
}

std::optional<std::string> problem_of(const Index& index) {
  if (Problem problem = problem_of(index.shards)) return problem;
  if (Problem problem = problem_of_names(index)) return problem;
  for (const SavedTensor& tensor : index.tensors) {
    if (const Problem problem = problem_of(tensor, index.shards)) return fmt::format("tensor '{}': {}", tensor.name, *problem);
  }
  return std::nullopt;
}

}  // namespace zt::ckpt
