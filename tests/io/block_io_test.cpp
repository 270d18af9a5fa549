// Tests files written and read in blocks, over a file system in memory that requires aligned blocks and completes operations in
// random order.
#include "zt/io/block_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "content.h"
#include "faults/fault_fs.h"
#include "support/message.h"

namespace zt::io {

namespace {

const std::vector<int64_t> kTransferSizes{0,          1,      4095,       4096,           4097,
                                          kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 5, 10 * kBlock + 4096};

int64_t calls_of(const FaultFs& files, const std::string& start) {
  const auto calls = files.calls();
  return std::count_if(calls.begin(), calls.end(), [&](const std::string& call) { return call.starts_with(start); });
}

std::vector<FileRange> random_ranges(int64_t bytes, size_t count, int64_t longest) {
  std::mt19937_64 random(static_cast<uint64_t>(bytes));
  std::vector<FileRange> ranges;
  for (size_t i = 0; i < count; ++i) {
    const auto offset = static_cast<int64_t>(random() % static_cast<uint64_t>(bytes + 1));
    const int64_t most = std::min(longest, bytes - offset);
    ranges.push_back({offset, static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1))});
  }
  return ranges;
}

class Transfer : public testing::TestWithParam<int64_t> {  // alignment
 protected:
  FaultFs files_{{.alignment = GetParam()}};
};

INSTANTIATE_TEST_SUITE_P(Alignment, Transfer, testing::Values(1, 512, 4096));

TEST_P(Transfer, WritesAnySizeFromScratchAndFromMemory) {
  for (const int64_t size : kTransferSizes) {
    SCOPED_TRACE(size);
    const Bytes bytes = content(size), shifted = content(size + 1, 2);
    const std::span<const std::byte> unaligned{shifted.data() + 1, static_cast<size_t>(size)};
    const auto name = std::to_string(size);
    write_file(files_, name + ".copied", size, copying(bytes));
    write_file(files_, name + ".lent", size, lending(unaligned));
    EXPECT_EQ(read_whole(files_, name + ".copied"), bytes);
    EXPECT_TRUE(std::ranges::equal(read_whole(files_, name + ".lent"), unaligned));
  }
}

TEST_P(Transfer, BeginsWithAnyBlock) {
  for (const int64_t size : kTransferSizes) {
    const Bytes bytes = content(size);
    for (const int64_t start : {int64_t{0}, kBlock, 2 * kBlock, 20 * kBlock}) {
      SCOPED_TRACE(testing::Message() << size << " from " << start);
      std::vector<int64_t> asked;
      const BlockSource copy = copying(bytes);
      const std::string name = std::to_string(size) + "." + std::to_string(start);
      write_file(
          files_, name, size,
          [&](int64_t offset, std::span<std::byte> scratch) {
            asked.push_back(offset);
            return copy(offset, scratch);
          },
          start);
      EXPECT_EQ(read_whole(files_, name), bytes);
      const auto turn = std::ranges::find_if(asked, [&](int64_t offset) { return offset < start; });
      EXPECT_TRUE(std::all_of(turn, asked.end(), [&](int64_t offset) { return offset < start; }));
      EXPECT_EQ(static_cast<int64_t>(asked.size()), (size + kBlock - 1) / kBlock);
    }
  }
}

TEST_P(Transfer, ReadsRangesOfAnyAlignment) {
  for (const int64_t size : kTransferSizes) {
    SCOPED_TRACE(size);
    const Bytes bytes = content(size);
    const std::string name = std::to_string(size);
    write_small(files_, name, bytes);
    for (const int64_t longest : {int64_t{10}, int64_t{100000}, size}) {
      auto ranges = random_ranges(size, 40, longest);
      ranges.push_back({0, size});
      ranges.push_back({size, 0});
      EXPECT_EQ(read_all(files_, name, ranges), parts(bytes, ranges));
    }
  }
}

TEST_P(Transfer, LendsAlignedMemoryWithoutACopy) {
  alignas(4096) static std::array<std::byte, 8192> memory{};
  write_file(files_, "file", 8192, [&](int64_t, std::span<std::byte>) -> std::span<const std::byte> { return memory; });
  EXPECT_EQ(read_whole(files_, "file"), Bytes(8192));
}

TEST_P(Transfer, SurvivesACrashAfterTheFolderIsSynced) {
  const Bytes bytes = content(kBlock + 77);
  write_file(files_, "file", kBlock + 77, copying(bytes));
  write_small(files_, "small", bytes);
  EXPECT_EQ(files_.after_crash({})->kind_of("file"), EntryKind::missing);
  files_.sync_folder("/");
  const auto next = files_.after_crash({});
  EXPECT_EQ(read_whole(*next, "file"), bytes);
  EXPECT_EQ(read_whole(*next, "small"), bytes);
}

TEST(TransferCalls, KeepsEightOperationsUnderWay) {
  FaultFs files;
  const int64_t size = 20 * kBlock;
  write_file(files, "file", size, copying(content(size)));
  const auto calls = files.calls();
  const auto first_wait = std::ranges::find(calls, "wait file");
  EXPECT_EQ(first_wait - std::ranges::find(calls, "write file [0, 4194304)"), kDepth);

  files.plan({});
  std::vector<FileRange> ranges;
  for (int64_t offset = 0; offset < size; offset += kBlock) ranges.push_back({offset, kBlock});
  read_all(files, "file", ranges);
  const auto reads = files.calls();
  EXPECT_EQ(std::ranges::find(reads, "wait file") - std::ranges::find(reads, "read file [0, 4194304)"), kDepth);
  EXPECT_EQ(calls_of(files, "read"), 20);
}

TEST(TransferCalls, ReadsNearRangesTogether) {
  FaultFs files;
  write_small(files, "file", content(3 * kBlock));
  std::vector<FileRange> ranges;
  for (int64_t i = 999; i >= 0; --i) ranges.push_back({i * 1000, 990});
  ranges.push_back({2 * kBlock, 100});
  files.plan({});
  read_all(files, "file", ranges);
  EXPECT_EQ(calls_of(files, "read"), 2);
}

TEST(TransferCalls, LargeRangesAreNotUnderWayTogether) {
  FaultFs files;
  const int64_t large = 5 * kBlock;
  const Bytes bytes = content(3 * large);
  write_small(files, "file", bytes);
  files.plan({});
  const std::vector<FileRange> ranges{{1, large}, {1 + large, large}, {1 + 2 * large, large - 1}};
  EXPECT_EQ(read_all(files, "file", ranges), parts(bytes, ranges));
  EXPECT_EQ(files.calls(), (std::vector<std::string>{"open file", "size file", "read file [0, 20975616)", "wait file",
                                                     "read file [20971520, 41947136)", "wait file",
                                                     "read file [41943040, 62914560)", "wait file"}));
}

TEST(TransferErrors, AFullDiskIsFoundBeforeAnythingIsWritten) {
  FaultFs files({.capacity = 3 << 20});
  const std::string said =
      test::message_of<Fault>([&] { write_file(files, "run/shard.h5", 5 << 20, copying(content(5 << 20))); });
  EXPECT_CONTAINS(said, "cannot create 'run/shard.h5': No such file or directory");
  const std::string full = test::message_of<Fault>([&] { write_file(files, "shard.h5", 5 << 20, copying(content(5 << 20))); });
  EXPECT_CONTAINS(full, "cannot reserve space for 'shard.h5': No space left on device: 5.0 MiB are needed and 3.0 MiB are free");
  EXPECT_EQ(calls_of(files, "write"), 0);
}

TEST(TransferErrors, AFullDiskIsFoundByAWriteWhereNothingCanBeReserved) {
  FaultFs files({.capacity = 3 << 20, .can_reserve = false});
  const std::string said = test::message_of<Fault>([&] { write_file(files, "shard.h5", 5 << 20, copying(content(5 << 20))); });
  EXPECT_CONTAINS(said, "cannot write 'shard.h5': No space left on device: 5.0 MiB are needed");
  FaultFs roomy({.can_reserve = false});
  const Bytes bytes = content(kBlock + 1);
  write_file(roomy, "file", kBlock + 1, copying(bytes));
  EXPECT_EQ(read_whole(roomy, "file"), bytes);
}

TEST(TransferErrors, NoFileIsOverwritten) {
  FaultFs files;
  write_small(files, "file", content(10));
  for (const auto& said : {test::message_of<Fault>([&] { write_file(files, "file", 1, copying(content(1))); }),
                           test::message_of<Fault>([&] { write_small(files, "file", content(1)); })}) {
    EXPECT_CONTAINS(said, "cannot create 'file': File exists");
  }
  EXPECT_EQ(read_whole(files, "file"), content(10));
}

TEST(TransferErrors, RangesPastTheEndAreFaultsBeforeAnythingIsRead) {
  FaultFs files;
  write_small(files, "file", content(1000));
  files.plan({});
  const int64_t huge = INT64_MAX;
  for (const FileRange range : {FileRange{0, 1001}, FileRange{1000, 1}, FileRange{1001, 0}, FileRange{huge, huge},
                                FileRange{0, huge}, FileRange{huge, 0}}) {
    const std::string said = test::message_of<Fault>([&] { read_all(files, "file", {{0, 10}, range}); });
    EXPECT_CONTAINS(said, "'file' is truncated or not the expected file");
    EXPECT_CONTAINS(said, "it has 1000");
  }
  EXPECT_EQ(calls_of(files, "read"), 0);
  EXPECT_SAYS("of 'file': neither may be negative", read_all(files, "file", {{-1, 1}}));
  EXPECT_SAYS("of 'file': neither may be negative", read_all(files, "file", {{1, -1}}));
}

TEST(TransferErrors, AFileThatIsTruncatedWhileItIsReadIsAFault) {
  FaultFs files;
  write_small(files, "file", content(20 * kBlock));
  std::vector<FileRange> ranges;
  for (int64_t i = 0; i < 20; ++i) ranges.push_back({i * kBlock, 100});
  const auto cut = [&](size_t, std::span<const std::byte>) { files.open("file", {Access::replace}); };
  EXPECT_CONTAINS(test::message_of<Fault>([&] { read_ranges(files, "file", ranges, cut); }),
                  "'file' was truncated while it was in use: bytes");
}

TEST(TransferErrors, SmallFilesHaveALimit) {
  FaultFs files;
  write_small(files, "file", content(1000));
  EXPECT_EQ(read_small(files, "file", 1000), content(1000));
  EXPECT_CONTAINS(test::message_of<Fault>([&] { read_small(files, "file", 999); }), "'file' has 1000 B, where at most 999 B");
}

// The test's file system aborts if a file is closed with operations under way.
TEST(TransferErrors, ExceptionsOfASourceOrASinkReachTheCaller) {
  FaultFs files;
  const Bytes bytes = content(12 * kBlock);
  const auto failing = [&](int64_t offset, std::span<std::byte> scratch) -> std::span<const std::byte> {
    if (offset == 10 * kBlock) throw std::runtime_error("no tensor");
    return copying(bytes)(offset, scratch);
  };
  EXPECT_THROW(write_file(files, "file", 12 * kBlock, failing), std::runtime_error);
  EXPECT_SAYS("the source returned 5 bytes",
              write_file(files, "other", 10, [&](int64_t, std::span<std::byte> scratch) { return scratch.first(5); }));
  write_file(files, "third", 12 * kBlock, copying(bytes));
  const std::vector<FileRange> ranges{{0, 1}, {2 * kBlock, 1}, {4 * kBlock, 1}, {6 * kBlock, 1}};
  EXPECT_THROW(read_ranges(files, "third", ranges, [](size_t, auto) { throw std::runtime_error("no room"); }),
               std::runtime_error);
}

TEST(TransferErrors, RetriesEnd) {
  FaultFs files;
  files.plan({Trouble::What::error, 2, EAGAIN, 1000000});
  const std::string said = test::message_of<Fault>([&] { write_small(files, "file", content(10)); });
  EXPECT_CONTAINS(said, "cannot write 'file': Resource temporarily unavailable: all retries failed for about 4 s");
}

}  // namespace

}  // namespace zt::io
