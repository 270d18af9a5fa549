// Tests that a load of a damaged checkpoint fails with an error that names the file, and never gives other values.
#include <gtest/gtest.h>

#include <random>

#include "ckpt/support/bag.h"
#include "folder/store.h"
#include "io/faults/fault_fs.h"
#include "load/loader.h"
#include "save/saver.h"
#include "support/message.h"
#include "zt/base/error.h"
#include "zt/io/atomic_file.h"
#include "zt/io/io_errors.h"
#include "zt/io/small_files.h"

namespace zt::test {
namespace {

using namespace zt::ckpt;
using namespace zt::io;
using Bytes = std::vector<std::byte>;

constexpr const char* kDamagedRoot = "runs/test";
constexpr const char* kFolder = "runs/test/step_00000001";
constexpr int64_t kAll = int64_t{1} << 40;

const std::vector<std::string> kFiles{"checkpoint.h5", "shards/rank_00000.h5"};

class Damaged : public testing::Test {
 protected:
  Damaged() {
    Saver saver(files_, Ranks());
    SaveOptions options;
    options.mode = SaveMode::blocking;
    saver.save(kDamagedRoot, 1, objects_of(make_bag(0, 1, 1)), options);
  }

  static std::string path(const std::string& file) { return fmt::format("{}/{}", kFolder, file); }
  Bytes content(const std::string& file) { return io::read_small(*files_, path(file), kAll); }
  void replace(const std::string& file, const Bytes& bytes) { io::replace_file(*files_, path(file), bytes); }

  // Returns the error of a load; empty if it gave the saved values.
  std::string load_error() {
    const auto bag = make_bag(0, 1, 0);
    try {
      load(*files_, Ranks(), kFolder, objects_of(bag), {});
    } catch (const Fault& error) {
      return error.what();
    }
    EXPECT_TRUE(equal(*bag, *make_bag(0, 1, 1))) << "a load gave other values";
    return "";
  }

  // Expects that both load and verify fail and name the file.
  void expect_found(const std::string& file) {
    const std::string said = load_error();
    EXPECT_CONTAINS(said, file);
    expect_verified_wrong(file);
  }
  void expect_verified_wrong(const std::string& file) {
    const auto wrong = verify(*files_, kFolder);
    ASSERT_FALSE(wrong.empty());
    EXPECT_CONTAINS(wrong[0], file);
  }

  const std::shared_ptr<io::FaultFs> files_ = std::make_shared<io::FaultFs>();
};

TEST_F(Damaged, NothingIsWrongAtFirst) {
  EXPECT_EQ(load_error(), "");
  EXPECT_TRUE(verify(*files_, kFolder).empty());
}

TEST_F(Damaged, EveryByteOfEveryFile) {
  std::mt19937_64 random(3);
  int64_t unseen = 0;
  for (const std::string& file : kFiles) {
    const Bytes sound = content(file);
    for (int i = 0; i < 1500; ++i) {
      Bytes bytes = sound;
      const size_t at = random() % bytes.size();
      bytes[at] ^= static_cast<std::byte>(1U << (random() % 8));
      replace(file, bytes);
      SCOPED_TRACE(fmt::format("{}, byte {} of {}", file, at, sound.size()));
      const std::string said = load_error();
      if (said.empty()) ++unseen;  // a load does not read HDF5's own bytes of a shard and the gaps
      else EXPECT_CONTAINS(said, file);
      expect_verified_wrong(file);
    }
    replace(file, sound);
  }
  EXPECT_GT(unseen, 0);
  EXPECT_EQ(load_error(), "");
}

TEST_F(Damaged, CutFiles) {
  std::mt19937_64 random(4);
  for (const std::string& file : kFiles) {
    const Bytes sound = content(file);
    for (int i = 0; i < 200; ++i) {
      const size_t bytes = i == 0 ? 0 : random() % sound.size();
      SCOPED_TRACE(fmt::format("{}, {} of {} bytes", file, bytes, sound.size()));
      replace(file, {sound.begin(), sound.begin() + static_cast<long>(bytes)});
      expect_verified_wrong(file);
      const std::string said = load_error();
      if (!said.empty()) EXPECT_CONTAINS(said, file);
      else EXPECT_EQ(file, kFiles[1]);  // only bytes after all data were cut off
    }
    replace(file, sound);
  }
}

TEST_F(Damaged, MissingFiles) {
  for (const std::string& file : kFiles) {
    const Bytes sound = content(file);
    files_->remove(path(file));
    expect_found(file);
    io::write_small(*files_, path(file), sound);
  }
}

TEST_F(Damaged, AShardOfAnotherCheckpoint) {
  {
    Saver saver(files_, Ranks());
    SaveOptions options;
    options.mode = SaveMode::blocking;
    saver.save(kDamagedRoot, 2, objects_of(make_bag(0, 1, 2)), options);
  }
  replace(kFiles[1], io::read_small(*files_, std::string(kDamagedRoot) + "/step_00000002/" + kFiles[1], kAll));
  expect_found(kFiles[1]);
}

TEST_F(Damaged, AnotherHdf5FileInTheMastersPlace) {
  replace(kFiles[0], content(kFiles[1]));
  expect_found(kFiles[0]);
}

TEST_F(Damaged, NamesThatDoNotMatchAreListedBeforeAnythingChanges) {
  const auto bag = make_bag(0, 1, 0);
  bag->tensors["other"] = bag->tensors["few"];
  bag->tensors.erase("few");
  bag->tensors["half"].shape = {10, 100};
  bag->tensors["half"].region = whole_region({10, 100});
  const auto before = bag->tensors["cut"].data.clone();
  const std::string said = message_of<Misuse>([&] { load(*files_, Ranks(), kFolder, objects_of(bag), {}); });
  EXPECT_CONTAINS(said, "not in the checkpoint (1): bag/other");
  EXPECT_CONTAINS(said, "in the checkpoint only (1): bag/few");
  EXPECT_CONTAINS(said, "bag/half is [10, 100], saved as [1000]");
  EXPECT_TRUE(bag->tensors["cut"].data.equal(before));

  MatchOptions options;
  options.only = {"^bag/(cut|same)$"};
  load(*files_, Ranks(), kFolder, objects_of(bag), options);
  EXPECT_TRUE(bag->tensors["cut"].data.equal(make_bag(0, 1, 1)->tensors["cut"].data));
  EXPECT_EQ(*bag->values["step"].get_if<int64_t>(), 0);

  options = {};
  options.map = {{"^bag/few$", "bag/other"}};
  options.only = {"other"};
  load(*files_, Ranks(), kFolder, objects_of(bag), options);
  EXPECT_TRUE(bag->tensors["other"].data.equal(make_bag(0, 1, 1)->tensors["few"].data));
}

}  // namespace
}  // namespace zt::test
