// Tests the FaultFs itself: its crashes and its faults.
#include "fault_fs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cerrno>
#include <set>

#include "io/content.h"

namespace zt::io {

namespace {

using What = Trouble::What;

Crash crash(Left data, Left names, uint64_t seed = 1) {
  return {data, names, seed};
}

int64_t move(File& file, IoDirection direction, Bytes& memory, int64_t offset = 0) {
  file.submit({direction, offset, memory.data(), static_cast<int64_t>(memory.size()), 7});
  const Completion done = file.wait();
  EXPECT_EQ(done.tag, 7);
  return done.result;
}

// Returns a new file with the content `bytes`, written and not synced.
std::unique_ptr<File> unsynced(FaultFs& files, const std::string& path, Bytes bytes) {
  auto file = files.open(path, {Access::create}).file;
  EXPECT_EQ(move(*file, IoDirection::write, bytes), static_cast<int64_t>(bytes.size()));
  return file;
}

TEST(FaultFs, LosesUnsyncedDataOrNot) {
  FaultFs files;
  const Bytes bytes = content(5000);
  const auto file = unsynced(files, "file", bytes);
  EXPECT_EQ(read_whole(files, "file"), bytes);
  EXPECT_EQ(read_whole(*files.after_crash(crash(Left::nothing, Left::everything)), "file"), Bytes());
  EXPECT_EQ(read_whole(*files.after_crash(crash(Left::everything, Left::everything)), "file"), bytes);
  file->sync();
  EXPECT_EQ(read_whole(*files.after_crash(crash(Left::nothing, Left::everything)), "file"), bytes);
}

TEST(FaultFs, LosesUnsyncedPagesInPart) {
  FaultFs files;
  const Bytes before = content(8 * 4096, 1), after = content(8 * 4096, 2);
  const auto file = unsynced(files, "file", before);
  file->sync();
  Bytes copy = after;
  move(*file, IoDirection::write, copy);
  std::set<std::string> patterns;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Bytes found = read_whole(*files.after_crash(crash(Left::some, Left::everything, seed)), "file");
    ASSERT_EQ(found.size(), before.size());
    std::string pattern;
    for (size_t page = 0; page < found.size(); page += 4096) {
      const auto is = [&](const Bytes& other) { return std::equal(&found[page], &found[page] + 4096, &other[page]); };
      EXPECT_NE(is(before), is(after));
      pattern += is(after) ? 'n' : 'o';
    }
    patterns.insert(pattern);
  }
  EXPECT_GT(patterns.size(), 10U);
}

TEST(FaultFs, NamesNeedTheirFolderSynced) {
  FaultFs files;
  files.make_folder("run");
  unsynced(files, "run/file", content(10))->sync();
  const auto kind = [&](Left names, const std::string& path) {
    return files.after_crash(crash(Left::nothing, names))->kind_of(path);
  };
  EXPECT_EQ(kind(Left::nothing, "run"), EntryKind::missing);
  EXPECT_EQ(kind(Left::everything, "run/file"), EntryKind::file);
  files.sync_folder("run");
  EXPECT_EQ(kind(Left::nothing, "run"), EntryKind::missing);
  files.sync_folder("/");
  EXPECT_EQ(kind(Left::nothing, "run/file"), EntryKind::file);

  EXPECT_EQ(files.rename("run/file", "run/new"), 0);
  EXPECT_EQ(kind(Left::nothing, "run/file"), EntryKind::file);
  EXPECT_EQ(kind(Left::nothing, "run/new"), EntryKind::missing);
  EXPECT_EQ(kind(Left::everything, "run/file"), EntryKind::missing);
  EXPECT_EQ(kind(Left::everything, "run/new"), EntryKind::file);
  files.sync_folder("run");
  EXPECT_EQ(files.remove("run/new"), 0);
  EXPECT_EQ(kind(Left::nothing, "run/new"), EntryKind::file);
  EXPECT_EQ(kind(Left::everything, "run/new"), EntryKind::missing);
}

TEST(FaultFs, SomeNamesMeansTheFirstChanges) {
  FaultFs files;
  for (const char* name : {"a", "b", "c"}) unsynced(files, name, {});
  files.rename("c", "d");
  std::set<std::string> found;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::string names;
    for (const Entry& entry : files.after_crash(crash(Left::nothing, Left::some, seed))->list("/").entries) names += entry.name;
    found.insert(names);
  }
  EXPECT_EQ(found, (std::set<std::string>{"", "a", "ab", "abc", "abd"}));
}

TEST(FaultFs, AFileHasOneWriterThatReplacesIt) {
  FaultFs files;
  const auto other = files.for_other_process();
  {
    const auto file = files.open("file", {Access::replace}).file;
    EXPECT_EQ(other->open("file", {Access::replace}).error, -EBUSY);
    EXPECT_EQ(other->open("file", {Access::read}).error, 0);
  }
  EXPECT_EQ(other->open("file", {Access::replace}).error, 0);
}

TEST(FaultFs, DiesForGood) {
  FaultFs files;
  const auto file = unsynced(files, "file", content(10));
  files.plan({What::death, 1});
  EXPECT_EQ(file->size(), 10);
  EXPECT_THROW(files.remove("file"), Death);
  EXPECT_THROW(file->size(), Death);
  EXPECT_THROW(files.list("/"), Death);
  EXPECT_EQ(files.calls(), (std::vector<std::string>{"size file", "remove file"}));
  EXPECT_EQ(files.after_crash(crash(Left::everything, Left::everything))->kind_of("file"), EntryKind::file);
}

TEST(FaultFs, FailsTheChosenCalls) {
  FaultFs files;
  files.plan({What::error, 1, ENOSPC, 2});
  EXPECT_EQ(files.make_folder("a"), 0);
  EXPECT_EQ(files.make_folder("b"), -ENOSPC);
  EXPECT_EQ(files.make_folder("b"), -ENOSPC);
  EXPECT_EQ(files.make_folder("b"), 0);
  Bytes bytes = content(10);
  const auto file = files.open("file", {Access::create}).file;
  for (const int64_t call : {0, 1}) {  // submit, wait
    files.plan({What::error, call, EIO});
    EXPECT_EQ(move(*file, IoDirection::write, bytes), -EIO);
    EXPECT_EQ(file->size(), 0);
  }
}

TEST(FaultFs, MovesAPartOrFlipsOneBit) {
  FaultFs files;
  Bytes bytes = content(5000);
  const auto file = files.open("file", {Access::create}).file;
  files.plan({What::short_count, 0});
  const int64_t moved = move(*file, IoDirection::write, bytes);
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, 5000);
  EXPECT_EQ(file->size(), moved);
  move(*file, IoDirection::write, bytes);

  const auto wrong_bits = [&](const Bytes& other) {
    int wrong = 0;
    for (size_t i = 0; i < bytes.size(); ++i) wrong += std::popcount(static_cast<unsigned>(bytes[i] ^ other[i]));
    return wrong;
  };
  const auto reader = files.open("file", {}).file;
  Bytes found(5000);
  files.plan({What::bit_flip, 0});
  move(*reader, IoDirection::read, found);
  EXPECT_EQ(wrong_bits(found), 1);
  EXPECT_EQ(read_whole(files, "file"), bytes);
  files.plan({What::bit_flip, 0});
  move(*file, IoDirection::write, bytes);
  EXPECT_EQ(wrong_bits(read_whole(files, "file")), 1);
}

TEST(FaultFs, HasACapacityAndAnAlignment) {
  FaultFs files({.capacity = 10000, .alignment = 512});
  const auto file = unsynced(files, "file", content(6000));
  EXPECT_EQ(files.free_bytes("/"), 4000);
  EXPECT_EQ(file->reserve(10001), -ENOSPC);
  Bytes bytes = content(6000);
  EXPECT_EQ(move(*file, IoDirection::write, bytes, 6000), 4000);
  EXPECT_EQ(move(*file, IoDirection::write, bytes, 10000), -ENOSPC);
  EXPECT_EQ(file->truncate(512), 0);
  EXPECT_EQ(files.free_bytes("/"), 9488);

  alignas(512) std::array<std::byte, 1024> memory{};
  const auto direct = files.open("file", {.caching = Caching::direct}).file;
  const auto read = [&](int64_t offset, std::byte* place, int64_t count) {
    direct->submit({IoDirection::read, offset, place, count});
    return direct->wait().result;
  };
  EXPECT_EQ(read(0, memory.data(), 512), 512);
  EXPECT_EQ(read(512, memory.data(), 512), 0);
  EXPECT_EQ(read(1, memory.data(), 512), -EINVAL);
  EXPECT_EQ(read(0, memory.data() + 1, 512), -EINVAL);
  EXPECT_EQ(read(0, memory.data(), 511), -EINVAL);
}

TEST(FaultFs, RefusesWhatSystemsRefuse) {
  FaultFs files;
  files.make_folder("full");
  files.make_folder("empty");
  unsynced(files, "full/file", {});
  EXPECT_EQ(files.open("none", {}).error, -ENOENT);
  EXPECT_EQ(files.open("none/file", {Access::create}).error, -ENOENT);
  EXPECT_EQ(files.open("full/file/file", {Access::create}).error, -ENOTDIR);
  EXPECT_EQ(files.open("full", {}).error, -EISDIR);
  EXPECT_EQ(files.open("full/file", {Access::create}).error, -EEXIST);
  EXPECT_EQ(files.make_folder("full"), -EEXIST);
  EXPECT_EQ(files.remove("full"), -ENOTEMPTY);
  EXPECT_EQ(files.remove("none"), -ENOENT);
  EXPECT_EQ(files.rename("none", "other"), -ENOENT);
  EXPECT_EQ(files.rename("empty", "full"), -ENOTEMPTY);
  EXPECT_EQ(files.rename("full", "empty"), 0);
  EXPECT_EQ(files.rename("empty/file", "file"), -EXDEV);
  EXPECT_EQ(files.list("full").error, -ENOENT);
  EXPECT_EQ(files.sync_folder("empty/file"), -ENOTDIR);
}

using FaultFsDeathTest = testing::Test;

TEST(FaultFsDeathTest, EndsTheProgramWhenAFileIsClosedTooEarly) {
  FaultFs files;
  Bytes bytes = content(10);
  EXPECT_DEATH(
      {
        const auto file = files.open("file", {Access::create}).file;
        file->submit({IoDirection::write, 0, bytes.data(), 10});
      },
      "file was closed with 1 operations under way");
}

}  // namespace

}  // namespace zt::io
