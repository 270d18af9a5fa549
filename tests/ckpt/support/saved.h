// Checkpoints for tests: tensors divided among shards, as images in memory and as a folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>

#include "format/check.h"
#include "format/index.h"
#include "format/master.h"
#include "format/shard_image.h"
#include "hdf5/names.h"
#include "support/message.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

using test::message_of;
using testing::HasSubstr;

// With a sanitizer, tests cannot measure memory: the sanitizer takes much of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

inline Box whole_box(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

struct TestTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // of all elements, row-major
  std::vector<int64_t> bounds;   // shard s has elements [bounds[s], bounds[s + 1])
};

// Returns the bytes of elements 0, 1, 2, ... of type T.
template <class T>
std::vector<std::byte> counting(int64_t count) {
  std::vector<T> items;
  for (int64_t i = 0; i < count; ++i) items.push_back(static_cast<T>(i));
  std::vector<std::byte> bytes(items.size() * sizeof(T));
  if (count > 0) std::memcpy(bytes.data(), items.data(), bytes.size());
  return bytes;
}

inline std::vector<uint64_t> block_checksums(std::span<const std::byte> bytes) {
  std::vector<uint64_t> checksums;
  for (size_t i = 0; i < bytes.size(); i += io::kChecksumBlock)
    checksums.push_back(io::xxh3(bytes.subspan(i, std::min<size_t>(io::kChecksumBlock, bytes.size() - i))));
  return checksums;
}

struct Saved {
  MasterIndex index;
  std::vector<std::unique_ptr<ShardImage>> shards;
};

// Saves tensors in memory. Every shard has a piece of every tensor; the piece may be empty.
inline Saved save(const std::vector<TestTensor>& tensors, size_t shards) {
  Saved saved;
  for (const TestTensor& tensor : tensors)
    saved.index.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, Value::Table(), {}});
  for (size_t s = 0; s < shards; ++s) {
    std::vector<ShardDataset> datasets;
    for (const TestTensor& tensor : tensors)
      datasets.push_back({piece_path(tensor.name, 0), tensor.dtype, tensor.bounds[s + 1] - tensor.bounds[s]});
    auto image = std::make_unique<ShardImage>(datasets);
    std::vector<uint64_t> checksums;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto item = static_cast<int64_t>(c10::elementSize(tensors[i].dtype));
      const auto bytes = std::span(tensors[i].bytes).subspan(tensors[i].bounds[s] * item, datasets[i].count * item);
      if (!bytes.empty()) std::memcpy(image->data() + image->offset(i), bytes.data(), bytes.size());
      const Region region{{whole_box(tensors[i].shape)}, tensors[i].bounds[s], datasets[i].count};
      saved.index.tensors[i].pieces.push_back({static_cast<int32_t>(s), image->offset(i), region, block_checksums(bytes)});
      checksums.push_back(piece_checksum(saved.index.tensors[i].pieces.back().checksums));
    }
    image->set_checksums(checksums);
    saved.index.shards.push_back({shard_file(static_cast<int64_t>(s)), image->bytes(), image->rest()});
    saved.shards.push_back(std::move(image));
  }
  return saved;
}

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "zt-ckpt-test-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ / name; }
  void put(const std::string& name, std::span<const std::byte> bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void put(const Saved& saved, const std::string& name) const {
    put(name + "/checkpoint.h5", make_master(saved.index));
    for (size_t s = 0; s < saved.shards.size(); ++s)
      put(name + "/" + saved.index.shards[s].file, {saved.shards[s]->data(), static_cast<size_t>(saved.shards[s]->bytes())});
  }

 private:
  std::filesystem::path path_;
};

// Returns a small checkpoint with tensors of many dtypes and shapes, attributes, and values of all kinds.
inline Saved small_checkpoint() {
  std::vector<TestTensor> tensors{
      {"model/h.0.weight", at::kFloat, {7, 5}, counting<float>(35), {0, 12, 23, 35}},  // both divisions are inside a row
      {"model/h.0.bias", at::kBFloat16, {6}, counting<c10::BFloat16>(6), {0, 0, 6, 6}},
      {"model/cube", at::kHalf, {3, 4, 5}, counting<c10::Half>(60), {0, 7, 33, 60}},
      {"optimizer/exp_avg/h.0.weight", at::kDouble, {7, 5}, counting<double>(35), {0, 1, 34, 35}},
      {"model/scale", at::kChar, {}, {std::byte{42}}, {0, 0, 1, 1}},
      {"model/none", at::kInt, {4, 0, 3}, {}, {0, 0, 0, 0}},
      {"data/mask", at::kBool, {5}, std::vector<std::byte>(5, std::byte{1}), {0, 2, 4, 5}},
      {"data/place", at::kLong, {2, 2}, counting<int64_t>(4), {0, 1, 2, 4}},
  };
  Saved saved = save(tensors, 3);
  saved.index.tensors[0].attributes =
      Value::Table{{"dims", Value::List{"out", "in"}}, {"trainable", true}, {"tie", Value()}, {"group", 3}};
  saved.index.values =
      Value::Table{{"trainer/step", 200},
                   {"trainer/loss_scale", Value::Table{{"scale", 65536.0}, {"good", 17}, {"overflows", Value::List{}}}},
                   {"script/name", "gpt"},
                   {"script/sizes", Value::List{1, 2, 3}},
                   {"script/mixed", Value::List{1, "two", Value::List{3.0}, Value()}}};
  return saved;
}

}  // namespace zt::ckpt
