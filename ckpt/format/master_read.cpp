#include <span>
#include <type_traits>

#include "check.h"
#include "hdf5/image.h"
#include "hdf5/names.h"
#include "hdf5/reader.h"
#include "hdf5/structure.h"
#include "hdf5/types.h"
#include "master.h"
#include "master_paths.h"
#include "user_block.h"
#include "values.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

// A column that is consumed from its start. Throws a Fault that names it if rows are missing or left over.
template <class T>
class Column {
 public:
  Column(TreeReader& reader, const char* path) : path_(path), cells_(read(reader, path)) {}

  size_t size() const { return cells_.size(); }
  T next() { return std::move(take(1)[0]); }
  std::vector<T> next(int64_t count) {
    const std::span<T> cells = take(count);
    return {cells.begin(), cells.end()};
  }
  void end() const {
    if (place_ != cells_.size()) fault("{}: {} of its {} rows are not used", path_, cells_.size() - place_, cells_.size());
  }

 private:
  static std::vector<T> read(TreeReader& reader, const char* path) {
    if constexpr (std::is_same_v<T, std::string>) return reader.strings(path);
    else return reader.column<T>(path, std::is_signed_v<T> ? H5T_STD_I64LE : H5T_STD_U64LE);
  }
  std::span<T> take(int64_t count) {
    if (count < 0 || static_cast<uint64_t>(count) > cells_.size() - place_)
      fault("{}: {} rows from row {} on are needed, it has {}", path_, count, place_, cells_.size());
    place_ += static_cast<size_t>(count);
    return std::span(cells_).subspan(place_ - static_cast<size_t>(count), static_cast<size_t>(count));
  }

  const char* path_;
  std::vector<T> cells_;
  size_t place_ = 0;
};

std::vector<SavedShard> read_shards(TreeReader& reader) {
  Column<std::string> file(reader, master::kShardFile);
  Column<int64_t> bytes(reader, master::kShardBytes);
  Column<uint64_t> rest(reader, master::kShardRest);
  std::vector<SavedShard> shards;
  for (size_t i = 0; i < file.size(); ++i) shards.push_back({file.next(), bytes.next(), rest.next()});
  bytes.end();
  rest.end();
  return shards;
}

class Pieces {
 public:
  explicit Pieces(TreeReader& reader)
      : shard_(reader, master::kPieceShard),
        offset_(reader, master::kPieceOffset),
        first_(reader, master::kPieceFirst),
        count_(reader, master::kPieceCount),
        boxes_(reader, master::kPieceBoxes),
        checksums_(reader, master::kPieceChecksums),
        begin_(reader, master::kBoxBegin),
        end_(reader, master::kBoxEnd),
        checksum_(reader, master::kChecksum) {}

  SavedPiece next(int64_t dims) {
    SavedPiece piece;
    const int64_t shard = shard_.next(), boxes = boxes_.next();
    if (shard < 0 || shard > INT32_MAX) fault("{}: there is no shard {}", master::kPieceShard, shard);
    // A box without dims takes no rows of the box columns, so these do not bound the number. A tensor without dims has one box.
    if (dims == 0 && boxes != 1) fault("{}: {} boxes of a tensor without dims", master::kPieceBoxes, boxes);
    piece.shard = static_cast<int32_t>(shard);
    piece.offset = offset_.next();
    for (int64_t i = 0; i < boxes; ++i) piece.region.boxes.push_back({begin_.next(dims), end_.next(dims)});
    piece.region.first = first_.next();
    piece.region.count = count_.next();
    piece.checksums = checksum_.next(checksums_.next());
    return piece;
  }

  void end() const {
    for (const auto* column : {&shard_, &offset_, &first_, &count_, &boxes_, &checksums_, &begin_, &end_}) column->end();
    checksum_.end();
  }

 private:
  Column<int64_t> shard_, offset_, first_, count_, boxes_, checksums_, begin_, end_;
  Column<uint64_t> checksum_;
};

std::string plain_name(const std::string& path) {
  const auto name = decode_name(path);
  if (!name || name->empty()) fault("'{}' is no name of a tensor or value", path);
  return *name;
}

std::vector<SavedTensor> read_tensors(TreeReader& reader) {
  Column<std::string> name(reader, master::kTensorName), dtype(reader, master::kTensorType);
  Column<int64_t> dims(reader, master::kTensorDims), pieces(reader, master::kTensorPieces);
  Column<int64_t> attributes(reader, master::kTensorAttributes), shape(reader, master::kShape);
  Pieces piece(reader);
  std::vector<SavedTensor> tensors;
  for (size_t i = 0; i < name.size(); ++i) {
    SavedTensor tensor;
    const std::string path = name.next();
    tensor.name = plain_name(path);
    const std::string type = dtype.next();
    const auto known = type_named(type);
    if (!known) fault("tensor '{}': unknown dtype '{}'", tensor.name, type);
    tensor.dtype = *known;
    const int64_t rank = dims.next(), count = pieces.next(), attribute_count = attributes.next();
    tensor.shape = shape.next(rank);
    for (int64_t k = 0; k < count; ++k) tensor.pieces.push_back(piece.next(rank));
    tensor.attributes = read_attributes(reader, "/" + path, attribute_count);
    tensors.push_back(std::move(tensor));
  }
  for (const auto* column : {&dims, &pieces, &attributes, &shape}) column->end();
  dtype.end();
  piece.end();
  return tensors;
}

Value read_values(TreeReader& reader) {
  const std::vector<std::string> paths = reader.strings(master::kValueName);
  Value::Table values;
  for (const std::string& path : paths) {
    if (!values.emplace(plain_name(path), Value()).second) fault("{}: '{}' occurs twice", master::kValueName, path);
  }
  for (const std::string& path : paths) values[plain_name(path)] = read_value(reader, "/" + path);
  return values;
}

MasterIndex read_index(std::span<const std::byte> file) {
  const int minor = check_user_block(file);
  check_structure(file, kUserBlock, minor < kCompactSince ? DenseGroups::any : DenseGroups::large_only);
  const Hdf5Session session;
  const Handle image = read_image(file);
  TreeReader reader(image, static_cast<int64_t>(file.size()));
  MasterIndex index;
  index.shards = read_shards(reader);
  index.tensors = read_tensors(reader);
  index.values = read_values(reader);
  if (const auto problem = problem_of(index)) fault("{}", *problem);
  return index;
}

// Returns action(). Adds the file's name to the message of its Fault.
template <class Action>
auto naming(const std::string& path, const Action& action) {
  try {
    return action();
  } catch (const Fault& error) {
    fault("cannot read the checkpoint's master file '{}': {}. Load an older checkpoint or a copy of this one", path,
          error.what());
  }
}

}  // namespace

MasterIndex read_master(std::span<const std::byte> file, const std::string& path) {
  return naming(path, [&] { return read_index(file); });
}

void check_master_start(std::span<const std::byte> start, int64_t size, const std::string& path) {
  naming(path, [&] { check_file_start(start, size); });
}

}  // namespace zt::ckpt
