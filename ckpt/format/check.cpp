#include "check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "hdf5/names.h"
#include "hdf5/types.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

namespace {

using Problem = std::optional<std::string>;

Problem problem_of(const SavedPiece& piece, const SavedTensor& tensor, const std::vector<SavedShard>& shards) {
  const Region& region = piece.region;
  if (piece.shard < 0 || piece.shard >= static_cast<int64_t>(shards.size()))
    return fmt::format("it is in shard {} of {}", piece.shard, shards.size());
  if (region.boxes.empty()) return "it has no boxes";
  if (std::string wrong = validate_region(tensor.shape, region); !wrong.empty()) return wrong;
  const auto item = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const int64_t size = shards[static_cast<size_t>(piece.shard)].bytes;
  if (piece.offset < 0 || piece.offset > size || region.count > (size - piece.offset) / item)
    return fmt::format("its {} elements from byte {} on are not in the {} bytes of {}", region.count, piece.offset, size,
                       shards[static_cast<size_t>(piece.shard)].file);
  if (piece.offset % item != 0) return fmt::format("its elements begin at byte {}, no multiple of their size", piece.offset);
  const int64_t blocks = io::checksum_blocks(region.count * item);
  if (static_cast<int64_t>(piece.checksums.size()) != blocks)
    return fmt::format("it has {} checksums and {} blocks", piece.checksums.size(), blocks);
  return std::nullopt;
}

Problem problem_of(const SavedTensor& tensor, const std::vector<SavedShard>& shards) {
  if (!has_type(tensor.dtype)) return fmt::format("its dtype is {}", c10::toString(tensor.dtype));
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
  if (stored != *numel) return fmt::format("only {} of its {} elements are stored", stored, *numel);
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

// Checks that names are paths of one tree in which tensors and values are leaves.
class NameTree {
 public:
  Problem add(const std::string& name) {
    const std::string path = encode_name(name);
    if (name.empty()) return "a tensor or value has the empty name";
    if (path.size() > kLongestName) return fmt::format("a name has {} bytes, {} are allowed", path.size(), kLongestName);
    if (path == "index" || path.starts_with("index/"))
      return fmt::format("the name '{}' is not allowed: 'index' is reserved", name);
    if (!leaves_.insert(path).second) return fmt::format("two tensors or values have the name '{}'", name);
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      groups_.insert(path.substr(0, slash));
    return std::nullopt;
  }

  Problem conflict() const {
    for (const std::string& leaf : leaves_) {
      if (groups_.contains(leaf)) return fmt::format("'{}' is a tensor or value, and another name lies below it", leaf);
    }
    return std::nullopt;
  }

 private:
  std::set<std::string> leaves_, groups_;
};

}  // namespace

std::optional<std::string> problem_of_names(const MasterIndex& index) {
  NameTree names;
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

std::optional<std::string> problem_of(const MasterIndex& index) {
  if (Problem problem = problem_of(index.shards)) return problem;
  if (Problem problem = problem_of_names(index)) return problem;
  for (const SavedTensor& tensor : index.tensors) {
    if (const Problem problem = problem_of(tensor, index.shards)) return fmt::format("tensor '{}': {}", tensor.name, *problem);
  }
  return std::nullopt;
}

}  // namespace zt::ckpt
