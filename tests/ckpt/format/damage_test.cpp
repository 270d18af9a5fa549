#include <sys/resource.h>

#include <fstream>
#include <random>

#include "ckpt/support/saved.h"
#include "format/user_block.h"
#include "hdf5/image.h"
#include "hdf5/tree.h"
#include "hdf5/types.h"

namespace zt::ckpt {

namespace {

using Bytes = std::vector<std::byte>;

std::string refusal_of(const Bytes& file) {
  return message_of<Fault>([&] { read_master(file, "step_7/checkpoint.h5"); });
}

// Makes size and checksum in the user block right again.
void seal(Bytes& file) {
  const std::string text = make_user_block(std::span(file).subspan(kUserBlock));
  std::memcpy(file.data(), text.data(), text.size());
}

// Returns the message that refuses the small checkpoint's master after `change` by libhdf5, with a checksum that is right again.
std::string refusal_after(const std::function<void(hid_t file)>& change) {
  const Bytes sound = make_master(small_checkpoint().index);
  SparseMemory memory(static_cast<int64_t>(sound.size()));
  memory.resize(static_cast<int64_t>(sound.size()));
  std::memcpy(memory.data(), sound.data(), sound.size());
  {
    const Hdf5Session session;
    Handle file = change_image(memory);
    change(file);
    file.close("close");
  }
  Bytes changed(memory.data(), memory.data() + memory.bytes());
  seal(changed);
  const std::string refusal = refusal_of(changed);
  EXPECT_THAT(refusal, HasSubstr("'step_7/checkpoint.h5'"));
  return refusal;
}

void remove(hid_t file, const std::string& path) {
  checked(H5Ldelete(file, path.c_str(), H5P_DEFAULT), "remove");
}

// Replaces a dataset by a list of numbers.
void replace(hid_t file, const std::string& path, const std::vector<int64_t>& numbers, hid_t type = H5T_STD_I64LE) {
  remove(file, path);
  const Handle dataset(H5Dcreate2(file, path.c_str(), type, shape_of({static_cast<int64_t>(numbers.size())}), H5P_DEFAULT,
                                  dataset_list(H5D_CONTIGUOUS), H5P_DEFAULT),
                       H5Dclose, "make");
  if (!numbers.empty()) checked(H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()), "write");
}

std::vector<int64_t> numbers_of(hid_t file, const std::string& path) {
  const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "open");
  const Handle space(H5Dget_space(dataset), H5Sclose, "space");
  std::vector<int64_t> numbers(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
  checked(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()), "read");
  return numbers;
}

// Sets the number in one row of a column.
void set(hid_t file, const std::string& path, size_t row, int64_t number) {
  std::vector<int64_t> numbers = numbers_of(file, path);
  numbers.at(row) = number;
  replace(file, path, numbers);
}

// Returns the message that refuses the small checkpoint's master after `from`, which occurs once, was replaced by `to`.
std::string refusal_with_text(std::string_view from, std::string_view to) {
  Bytes file = make_master(small_checkpoint().index);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string_view::npos);
  EXPECT_EQ(text.find(from, place + 1), std::string_view::npos);
  EXPECT_EQ(from.size(), to.size());
  std::memcpy(file.data() + place, to.data(), to.size());
  seal(file);
  return refusal_of(file);
}

// Returns the message that refuses the small checkpoint's master after the second shard's name was replaced by `name`.
std::string refusal_with_shard(const std::string& name) {
  return refusal_with_text(shard_file(0) + shard_file(1), shard_file(0) + name);
}

Bytes mutated(Bytes file, std::mt19937_64& random) {
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  switch (below(4)) {
    case 0:
      file[below(file.size())] ^= static_cast<std::byte>(1 << below(8));
      break;
    case 1:
      file.resize(below(file.size()));
      break;
    case 2:
      for (size_t i = 1 + below(600); i > 0; --i) file.push_back(static_cast<std::byte>(random()));
      break;
    default: {
      const size_t place = below(file.size()), length = std::min(1 + below(64), file.size() - place);
      const auto change = static_cast<std::byte>(1 + below(255));
      for (size_t i = 0; i < length; ++i) file[place + i] ^= change;
    }
  }
  return file;
}

// Limits the process's address space to `more` bytes above its present size. A larger allocation throws an error that is no
// Fault.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    if (kIsSanitized) return;
    const rlimit limit{static_cast<rlim_t>(pages * 4096 + more), before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST(CkptDamage, IsAlwaysSeen) {
  const Bytes sound = make_master(small_checkpoint().index);
  EXPECT_NO_THROW(read_master(sound, "sound"));
  const MemoryLimit limit(64 << 20);
  std::mt19937_64 random(5);
  for (int i = 0; i < 10000; ++i) {
    const Bytes damaged = mutated(sound, random);
    ASSERT_THAT(refusal_of(damaged), HasSubstr("'step_7/checkpoint.h5'")) << "mutation " << i;
  }
}

TEST(CkptDamage, SaysWhatIsWrongWithTheWhole) {
  const Bytes sound = make_master(small_checkpoint().index);
  const auto with = [&](size_t place, std::string_view text) {
    Bytes file = sound;
    std::memcpy(file.data() + place, text.data(), text.size());
    return refusal_of(file);
  };
  EXPECT_THAT(refusal_of({}), HasSubstr("does not begin like"));
  EXPECT_THAT(refusal_of(Bytes(sound.begin() + kUserBlock, sound.end())), HasSubstr("an HDF5 file of another program"));
  EXPECT_THAT(refusal_of(Bytes(sound.begin(), sound.begin() + 100)), HasSubstr("cut short"));
  EXPECT_THAT(refusal_of(Bytes(sound.begin(), sound.end() - 1)), HasSubstr("and its first lines say"));
  EXPECT_THAT(with(20, "2.0"), HasSubstr("its format is 2.0, and this program reads 1.x"));
  EXPECT_THAT(with(20, "x.0"), HasSubstr("no format version"));
  EXPECT_THAT(with(sound.size() - 9, "x"), HasSubstr("do not fit its checksum"));
  EXPECT_THAT(with(kUserBlock - 9, "x"), HasSubstr("do not fit its checksum"));
}

TEST(CkptDamage, OfAnAdversaryInTheIndexIsSeen) {
  for (const char* path :
       {"/index/shards/file",   "/index/shards/bytes",     "/index/shards/rest",    "/index/tensors/name",
        "/index/tensors/dtype", "/index/tensors/dims",     "/index/tensors/pieces", "/index/tensors/attributes",
        "/index/pieces/shard",  "/index/pieces/offset",    "/index/pieces/first",   "/index/pieces/count",
        "/index/pieces/boxes",  "/index/pieces/checksums", "/index/shape",          "/index/box_begin",
        "/index/box_end",       "/index/checksum",         "/index/values",         "/trainer/step",
        "/model/h.0.weight"}) {
    EXPECT_THAT(refusal_after([&](hid_t file) { remove(file, path); }), HasSubstr(path)) << "removed";
    EXPECT_THAT(refusal_after([&](hid_t file) {
                  remove(file, path);
                  checked(H5Gclose(H5Gcreate2(file, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)), "group");
                  if (std::string(path) == "/trainer/step") remove(file, path);
                }),
                HasSubstr(path))
        << "a group";
    if (std::string(path).starts_with("/index")) {
      EXPECT_THAT(refusal_after([&](hid_t file) { replace(file, path, {1, 2}, H5T_STD_I32LE); }), HasSubstr(path)) << "i32";
    }
  }
}

TEST(CkptDamage, OfAnAdversaryInNumbersIsSeen) {
  const Bytes sound = make_master(small_checkpoint().index);
  for (const char* path :
       {"/index/shards/bytes", "/index/tensors/dims", "/index/tensors/pieces", "/index/tensors/attributes", "/index/pieces/shard",
        "/index/pieces/offset", "/index/pieces/first", "/index/pieces/count", "/index/pieces/boxes", "/index/pieces/checksums",
        "/index/shape", "/index/box_begin", "/index/box_end"}) {
    for (const int64_t number : {int64_t{-1}, int64_t{1} << 31, int64_t{1} << 40, INT64_MAX, INT64_MIN}) {
      const std::string name = path;
      if (name == "/index/shards/bytes" && number > 0) continue;  // only a comparison with the file itself finds these
      const MemoryLimit limit(64 << 20);
      EXPECT_NE(refusal_after([&](hid_t file) { set(file, path, 0, number); }), "no error") << path << " " << number;
    }
    EXPECT_NE(refusal_after([&](hid_t file) {
                std::vector<int64_t> numbers = numbers_of(file, path);
                numbers.push_back(0);
                replace(file, path, numbers);
              }),
              "no error")
        << path << " is longer";
    EXPECT_NE(refusal_after([&](hid_t file) {
                std::vector<int64_t> numbers = numbers_of(file, path);
                numbers.pop_back();
                replace(file, path, numbers);
              }),
              "no error")
        << path << " is shorter";
  }
}

TEST(CkptDamage, OfAnAdversaryInNamesIsSeen) {
  EXPECT_THAT(refusal_with_shard("../../etc/passwd.h5x"), HasSubstr("no name of a shard"));
  EXPECT_THAT(refusal_with_shard("/hards/rank_00001.h5"), HasSubstr("no name of a shard"));
  EXPECT_THAT(refusal_with_shard("shards/rank_0000/.h5"), HasSubstr("no name of a shard"));
  EXPECT_THAT(refusal_with_shard("shards/rank_00000.h5"), HasSubstr("named twice"));
  EXPECT_THAT(refusal_with_text("bfloat16", "bfloat17"), HasSubstr("unknown dtype 'bfloat17'"));
  EXPECT_FALSE(is_shard_file("shards/rank_000000.h5"));
  EXPECT_FALSE(is_shard_file("shards/rank_0000.h5"));
  EXPECT_FALSE(is_shard_file("shards/rank_00000.h5/x"));
  EXPECT_FALSE(is_shard_file("shards/rank_.h5"));
  EXPECT_TRUE(is_shard_file("shards/rank_123456.h5"));
}

TEST(CkptDamage, OfAnAdversaryInStorageIsSeen) {
  const auto with_list = [](const std::function<void(hid_t)>& change, int64_t count) {
    return refusal_after([&](hid_t file) {
      remove(file, "/index/values");
      const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "list");
      change(list);
      const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "type");
      checked(H5Tset_size(type, 4), "size");
      checked(H5Tset_strpad(type, H5T_STR_NULLPAD), "pad");
      H5Dclose(checked(H5Dcreate2(file, "/index/values", type, shape_of({count}), H5P_DEFAULT, list, H5P_DEFAULT), "make"));
    });
  };
  const MemoryLimit limit(64 << 20);
  EXPECT_THAT(with_list([](hid_t list) { H5Pset_external(list, "/etc/passwd", 0, 40); }, 10), HasSubstr("in another file"));
  const hsize_t chunk = 10;
  EXPECT_THAT(with_list([&](hid_t list) { H5Pset_chunk(list, 1, &chunk); }, 10), HasSubstr("not in one piece"));
  EXPECT_THAT(with_list([](hid_t list) { H5Pset_layout(list, H5D_VIRTUAL); }, 10), HasSubstr("not in one piece"));
  EXPECT_THAT(with_list([](hid_t) {}, int64_t{1} << 50), HasSubstr("more than the file has"));
  EXPECT_THAT(with_list([](hid_t) {}, 10), HasSubstr("it needs 40 bytes and has 0"));
}

TEST(CkptDamage, OfAnAdversaryInValuesIsSeen) {
  const std::string group = "/trainer/loss_scale", mixed = "/script/mixed";
  const MemoryLimit limit(64 << 20);
  EXPECT_THAT(refusal_after([&](hid_t file) { H5Lcreate_external("/etc/x.h5", "/", file, (group + "/x").c_str(), 0, 0); }),
              HasSubstr("a soft or external link"));
  EXPECT_THAT(refusal_after([&](hid_t file) { H5Lcreate_soft("/trainer", file, (group + "/x").c_str(), 0, 0); }),
              HasSubstr("a soft or external link"));
  EXPECT_THAT(refusal_after([&](hid_t file) {
                for (const char* link : {"/x", "/y"}) H5Lcreate_hard(file, group.c_str(), file, (group + link).c_str(), 0, 0);
              }),
              testing::AnyOf(HasSubstr("inside each other"), HasSubstr("more than the file has")))
      << "a group that holds itself, twice";
  EXPECT_THAT(refusal_after([&](hid_t file) { H5Lmove(file, (mixed + "/2").c_str(), file, (mixed + "/7").c_str(), 0, 0); }),
              HasSubstr("cannot open '/script/mixed/2'"));
  EXPECT_THAT(refusal_after([&](hid_t file) { remove(file, mixed + "/3"); }), HasSubstr("another length"));
  EXPECT_THAT(refusal_after([&](hid_t file) { H5Lmove(file, (group + "/good").c_str(), file, (group + "/~41").c_str(), 0, 0); }),
              HasSubstr("'~41' is no name"));
  EXPECT_THAT(refusal_after([&](hid_t file) { replace(file, "/trainer/step", {1}, H5T_STD_I32LE); }),
              HasSubstr("its type is not one in which values are stored"));
  EXPECT_THAT(refusal_after([&](hid_t file) {
                remove(file, "/trainer/step");
                const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "type");
                checked(H5Tset_size(type, H5T_VARIABLE), "size");
                H5Dclose(checked(H5Dcreate2(file, "/trainer/step", type, shape_of({}), 0, 0, 0), "make"));
              }),
              HasSubstr("/trainer/step"))
      << "a string whose bytes are elsewhere";
  EXPECT_THAT(refusal_after([&](hid_t file) {
                remove(file, "/trainer/step");
                const int8_t odd = 7;
                const Handle type = hdf5_type(at::kBool);
                const Handle set(H5Dcreate2(file, "/trainer/step", type, shape_of({}), 0, dataset_list(H5D_COMPACT), 0), H5Dclose,
                                 "make");
                checked(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &odd), "write");
              }),
              HasSubstr("one of its booleans is 7"));
  EXPECT_THAT(
      refusal_after([&](hid_t file) { checked(H5Adelete_by_name(file, "/model/h.0.weight", "dims", H5P_DEFAULT), "remove"); }),
      HasSubstr("3 attributes instead of 4"));
}

}  // namespace zt::ckpt
