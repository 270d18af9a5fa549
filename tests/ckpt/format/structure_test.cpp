// Tests which structures of HDF5 files are written, and which are refused before libhdf5 parses them.
#include "hdf5/structure.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "ckpt/support/saved.h"
#include "format/user_block.h"
#include "hdf5/image.h"
#include "hdf5/tree.h"

namespace zt::ckpt {

namespace {

using Master = std::vector<std::byte>;

// Makes size and checksum in the user block right again, for a file of the format's minor version `minor`.
void seal_as(Master& file, int minor = kFormatMinor) {
  const std::string text = make_user_block(std::span(file).subspan(kUserBlock), minor);
  std::memcpy(file.data(), text.data(), text.size());
}

std::string refusal_of_master(const Master& file) {
  return message_of<Fault>([&] { read_master(file, "step_7/checkpoint.h5"); });
}

size_t count_of(std::span<const std::byte> bytes, std::string_view signature) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t count = 0;
  for (size_t place = text.find(signature); place != std::string_view::npos; place = text.find(signature, place + 1)) ++count;
  return count;
}

Value::Table numbered_table(int count) {
  Value::Table table;
  for (int i = 0; i < count; ++i) table[fmt::format("key {}", i)] = i;
  return table;
}

// A checkpoint whose groups have more links than libhdf5 keeps compact by default.
Saved wide_checkpoint() {
  Saved saved = small_checkpoint();
  Value::Table values = *saved.index.values.get_if<Value::Table>();
  values["trainer/gemm"] = numbered_table(12);
  values["script/tables"] = Value::List(40, Value(Value::Table{{"a", 1}}));
  for (int i = 0; i < 30; ++i) values[fmt::format("top {}", i)] = i;
  saved.index.values = std::move(values);
  saved.index.tensors[0].attributes = numbered_table(12);
  return saved;
}

// Replaces the group of 12 values by one with libhdf5's own settings, whose links are in a heap.
Master with_heap(int minor) {
  const Master sound = make_master(wide_checkpoint().index);
  SparseMemory memory(static_cast<int64_t>(sound.size()));
  memory.resize(static_cast<int64_t>(sound.size()));
  std::memcpy(memory.data(), sound.data(), sound.size());
  {
    const Hdf5Session session;
    Handle file = change_image(memory);
    checked(H5Ldelete(file, "/trainer/gemm", H5P_DEFAULT), "remove");
    const Handle group(H5Gcreate2(file, "/trainer/gemm", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "make");
    for (int64_t i = 0; i < 12; ++i) {
      const Handle dataset(H5Dcreate2(group, fmt::format("key {}", i).c_str(), H5T_STD_I64LE, shape_of({}), H5P_DEFAULT,
                                      dataset_list(H5D_COMPACT), H5P_DEFAULT),
                           H5Dclose, "make");
      checked(H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &i), "write");
    }
    file.close("close");
  }
  Master changed(memory.data(), memory.data() + memory.bytes());
  seal_as(changed, minor);
  return changed;
}

// Calls `use` in a child process for numbers from 0 to `count`. Returns the first number at which the child died, or -1.
int64_t first_death(int64_t count, const std::function<void(int64_t)>& use) {
  auto* const at =
      static_cast<int64_t*>(mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const pid_t child = fork();
  if (child == 0) {
    for (*at = 0; *at < count; ++*at) use(*at);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int64_t reached = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? -1 : *at;
  munmap(at, sizeof(int64_t));
  return reached;
}

}  // namespace

TEST(CkptStructure, GroupsAreCompact) {
  const Saved saved = wide_checkpoint();
  const Master file = make_master(saved.index);
  EXPECT_EQ(count_of(file, "FRHP") + count_of(file, "BTHD"), 0U) << "heaps and their indices";
  EXPECT_EQ(count_of(with_heap(1), "FRHP"), 1U) << "what the line above looks for";
  const MasterIndex read = read_master(file, "checkpoint.h5");
  EXPECT_EQ(read.values.to_json(), saved.index.values.to_json());
  EXPECT_EQ(read.tensors[0].attributes.to_json(), saved.index.tensors[0].attributes.to_json());
  std::vector<ShardDataset> datasets;
  for (int i = 0; i < 1500; ++i) datasets.push_back({fmt::format("/model/blocks.{}.attention.qkv.weight", i), at::kFloat, 1});
  ShardImage shard(datasets);
  EXPECT_EQ(count_of({shard.data(), static_cast<size_t>(shard.offset(0))}, "FRHP"), 0U);
}

TEST(CkptStructure, OnlyGroupsTooLargeForAHeaderHaveHeaps) {
  Saved saved = small_checkpoint();
  Value::Table values = *saved.index.values.get_if<Value::Table>();
  values["script/large"] = numbered_table(kMostCompactLinks + 1);
  saved.index.values = std::move(values);
  const Master file = make_master(saved.index);
  EXPECT_EQ(count_of(file, "FRHP"), 1U);
  EXPECT_EQ(read_master(file, "checkpoint.h5").values.to_json(), saved.index.values.to_json());
}

TEST(CkptStructure, HeapsOfSmallGroupsAreReadInOldFilesOnly) {
  const auto wanted = wide_checkpoint().index.values.to_json();
  for (const int minor : {0, 1}) EXPECT_EQ(read_master(with_heap(minor), "checkpoint.h5").values.to_json(), wanted);
  EXPECT_THAT(refusal_of_master(with_heap(kFormatMinor)), HasSubstr("a heap of links"));
  EXPECT_THAT(refusal_of_master(with_heap(kFormatMinor)), HasSubstr("is not part of this format: the group is small"));
}

TEST(CkptStructure, IsRefusedBeforeLibhdf5ParsesIt) {
  const Master sound = make_master(wide_checkpoint().index);
  const std::string_view text(reinterpret_cast<const char*>(sound.data()), sound.size());
  const auto with = [&](size_t place) {
    Master file = sound;
    file[place] ^= std::byte{0x10};
    seal_as(file);
    return refusal_of_master(file);
  };
  const std::string damaged = "its HDF5 structure is damaged: ";
  EXPECT_THAT(with(kUserBlock), HasSubstr(damaged + "the superblock at byte 512 lacks its signature"));
  EXPECT_THAT(with(kUserBlock + 20), HasSubstr(damaged + "the superblock at byte 512 does not fit its checksum"));
  size_t headers = 0;
  for (size_t place = text.find("OHDR"); place != std::string_view::npos; place = text.find("OHDR", place + 1)) {
    ++headers;
    const std::string header = fmt::format("an object header at byte {} ", place);
    EXPECT_THAT(with(place), HasSubstr(damaged + header + "lacks its signature"));
    EXPECT_THAT(with(place + 4), HasSubstr(damaged + header + "has an unknown version"));
    EXPECT_THAT(with(place + 12), HasSubstr(damaged + header + "does not fit its checksum"));
  }
  EXPECT_GT(headers, 90U);
}

// The user block's checksum is right again after each change, so that only the structure is wrong.
TEST(CkptStructure, NoDamageEndsTheProcess) {
  for (const Master& sound : {make_master(wide_checkpoint().index), make_master(small_checkpoint().index)}) {
    const auto size = static_cast<int64_t>(sound.size()) - kUserBlock;
    const int64_t stride = kIsSanitized ? 199 : 23;
    const auto use = [&](int64_t number) {
      std::mt19937_64 random(static_cast<uint64_t>(number));
      Master file = sound;
      const auto place = static_cast<size_t>(kUserBlock + number * stride);
      file[place] ^= static_cast<std::byte>(1 + random() % 255);
      if (number % 3 == 0) file[kUserBlock + random() % static_cast<size_t>(size)] ^= static_cast<std::byte>(1 + random() % 255);
      seal_as(file);
      const std::string refusal = refusal_of_master(file);
      if (refusal != "no error" && refusal.find("'step_7/checkpoint.h5'") == std::string::npos) abort();
    };
    EXPECT_EQ(first_death(size / stride, use), -1);
  }
}

}  // namespace zt::ckpt
