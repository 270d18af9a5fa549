#include <cstring>
#include <map>
#include <span>
#include <type_traits>

#include "check.h"
#include "hdf5/encoded_value.h"
#include "hdf5/image.h"
#include "hdf5/names.h"
#include "hdf5/types.h"
#include "master.h"
#include "master_paths.h"
#include "user_block.h"
#include "values.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::ckpt {

namespace {

// Maps a box of the tensor to elements [place, place + numel) of the dataset of a piece.
void map_box(hid_t list, hid_t tensor_space, const PlacedBox& placed, hid_t piece_space, const std::string& file,
             const std::string& dataset) {
  std::vector<hsize_t> begin(placed.box.begin.begin(), placed.box.begin.end()), sizes;
  for (size_t d = 0; d < begin.size(); ++d) sizes.push_back(static_cast<hsize_t>(placed.box.end[d]) - begin[d]);
  if (!begin.empty())
    checked(H5Sselect_hyperslab(tensor_space, H5S_SELECT_SET, begin.data(), nullptr, sizes.data(), nullptr), "select a box");
  const hsize_t place = static_cast<hsize_t>(placed.place), count = static_cast<hsize_t>(placed.box.numel());
  checked(H5Sselect_hyperslab(piece_space, H5S_SELECT_SET, &place, nullptr, &count, nullptr), "select a range");
  checked(H5Pset_virtual(list, tensor_space, file.c_str(), dataset.c_str(), piece_space), "map a piece of '" + dataset + "'");
}

void write_tensor(TreeWriter& tree, const SavedTensor& tensor, const std::vector<SavedShard>& shards) {
  const Handle list = dataset_list(H5D_VIRTUAL), space = shape_of(tensor.shape), selected = shape_of(tensor.shape);
  std::map<int32_t, size_t> before;  // shard -> number of its pieces so far
  for (const SavedPiece& piece : tensor.pieces) {
    const std::string source = piece_path(tensor.name, before[piece.shard]++);
    if (piece.region.count == 0) continue;
    const Handle piece_space = shape_of({piece.region.count});
    for (const PlacedBox& placed : region_boxes(piece.region))
      map_box(list, selected, placed, piece_space, shards[static_cast<size_t>(piece.shard)].file, source);
  }
  const Handle dataset = tree.dataset("/" + encode_name(tensor.name), hdf5_type(tensor.dtype), space, list);
  write_attributes(tree, dataset, *tensor.attributes.get_if<Value::Table>());
}

void write_column(TreeWriter& tree, const char* path, hid_t type, hid_t space, const void* data) {
  const Handle dataset = tree.dataset(path, type, space, dataset_list(H5D_CONTIGUOUS));
  if (H5Sget_simple_extent_npoints(space) > 0)
    checked(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), std::string("write '") + path + "'");
}

template <class T>
void write_column(TreeWriter& tree, const char* path, const std::vector<T>& column) {
  const hid_t type = std::is_signed_v<T> ? H5T_STD_I64LE : H5T_STD_U64LE;
  write_column(tree, path, type, shape_of({static_cast<int64_t>(column.size())}), column.data());
}

void write_column(TreeWriter& tree, const char* path, const std::vector<std::string>& column) {
  const EncodedValue encoded = encode_strings(column);
  write_column(tree, path, encoded.type, encoded.space, encoded.bytes.data());
}

template <class Rows, class Get>
auto column(const Rows& rows, Get get) {
  std::vector<decltype(get(rows.front()))> cells;
  for (const auto& row : rows) cells.push_back(get(row));
  return cells;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

int64_t list_size(const auto& list) {
  return static_cast<int64_t>(list.size());
}

void write_shards(TreeWriter& tree, const std::vector<SavedShard>& shards) {
  write_column(tree, master::kShardFile, column(shards, [](const SavedShard& shard) { return shard.file; }));
  write_column(tree, master::kShardBytes, column(shards, [](const SavedShard& shard) { return shard.bytes; }));
  write_column(tree, master::kShardRest, column(shards, [](const SavedShard& shard) { return shard.rest; }));
}

int64_t attributes_of(const SavedTensor& tensor) {
  return list_size(*tensor.attributes.get_if<Value::Table>());
}

void write_tensor_rows(TreeWriter& tree, const std::vector<SavedTensor>& tensors) {
  std::vector<int64_t> shapes;
  for (const SavedTensor& tensor : tensors) append(shapes, tensor.shape);
  write_column(tree, master::kTensorName, column(tensors, [](const SavedTensor& tensor) { return encode_name(tensor.name); }));
  write_column(tree, master::kTensorType, column(tensors, [](const SavedTensor& tensor) { return dtype_name(tensor.dtype); }));
  write_column(tree, master::kTensorDims, column(tensors, [](const SavedTensor& tensor) { return list_size(tensor.shape); }));
  write_column(tree, master::kTensorPieces, column(tensors, [](const SavedTensor& tensor) { return list_size(tensor.pieces); }));
  write_column(tree, master::kTensorAttributes, column(tensors, attributes_of));
  write_column(tree, master::kShape, shapes);
}

void write_pieces(TreeWriter& tree, const std::vector<SavedTensor>& tensors) {
  std::vector<const SavedPiece*> pieces;
  std::vector<int64_t> begins, ends;
  std::vector<uint64_t> checksums;
  for (const SavedTensor& tensor : tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      pieces.push_back(&piece);
      append(checksums, piece.checksums);
      for (const Box& box : piece.region.boxes) {
        append(begins, box.begin);
        append(ends, box.end);
      }
    }
  }
  write_column(tree, master::kPieceShard, column(pieces, [](const auto* piece) { return int64_t{piece->shard}; }));
  write_column(tree, master::kPieceOffset, column(pieces, [](const auto* piece) { return piece->offset; }));
  write_column(tree, master::kPieceFirst, column(pieces, [](const auto* piece) { return piece->region.first; }));
  write_column(tree, master::kPieceCount, column(pieces, [](const auto* piece) { return piece->region.count; }));
  write_column(tree, master::kPieceBoxes, column(pieces, [](const auto* piece) { return list_size(piece->region.boxes); }));
  write_column(tree, master::kPieceChecksums, column(pieces, [](const auto* piece) { return list_size(piece->checksums); }));
  write_column(tree, master::kBoxBegin, begins);
  write_column(tree, master::kBoxEnd, ends);
  write_column(tree, master::kChecksum, checksums);
}

void write_values(TreeWriter& tree, const Value& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : *values.get_if<Value::Table>()) {
    names.push_back(encode_name(name));
    write_value(tree, "/" + names.back(), value);
  }
  write_column(tree, master::kValueName, names);
}

// Returns the links of the groups of tensors and values; those within values and of the index are not among them.
LinkCounts links_of(const MasterIndex& index) {
  LinkCounts counts;
  for (const SavedTensor& tensor : index.tensors) counts.add("/" + encode_name(tensor.name));
  for (const auto& [name, value] : *index.values.get_if<Value::Table>()) counts.add("/" + encode_name(name));
  counts.add(master::kValueName);
  return counts;
}

void write_all(TreeWriter& tree, const MasterIndex& index) {
  for (const SavedTensor& tensor : index.tensors) write_tensor(tree, tensor, index.shards);
  write_values(tree, index.values);
  write_shards(tree, index.shards);
  write_tensor_rows(tree, index.tensors);
  write_pieces(tree, index.tensors);
}

}  // namespace

std::vector<std::byte> make_master(const MasterIndex& index) {
  if (const auto problem = problem_of(index)) misuse("this checkpoint cannot be saved: {}", *problem);
  const Hdf5Session session;
  SparseMemory memory(1 << 20);
  LinkCounts counts = links_of(index);
  Handle file = create_image(memory, {kUserBlock, 8, 8, counts.of("/")});
  {
    TreeWriter tree(file, std::move(counts));
    write_all(tree, index);
  }
  file.close("write a master file");
  std::vector<std::byte> bytes(memory.data(), memory.data() + memory.bytes());
  const std::string user_block = make_user_block(std::span(bytes).subspan(kUserBlock));
  std::memcpy(bytes.data(), user_block.data(), user_block.size());
  return bytes;
}

}  // namespace zt::ckpt
