// Tests swap files: what is written is read, over one folder and several, with trouble at each call, and nothing is left of them.
#include "zt/io/swap_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "content.h"
#include "faults/fault_fs.h"
#include "faults/outcome.h"
#include "folder.h"
#include "support/message.h"
#include "system_calls.h"
#include "zt/io/aligned_memory.h"
#include "zt/io/io_errors.h"
#include "zt/io/posix_fs.h"

namespace zt::io {

namespace {

constexpr int64_t kPage = kSwapAlignment;

// Aligned memory with content, or zeros.
struct Memory {
  explicit Memory(int64_t bytes, uint64_t seed = 0)
      : size(bytes), aligned(std::make_unique<AlignedMemory>(std::max<int64_t>(bytes, 1))) {
    if (seed > 0) std::ranges::copy(content(bytes, seed), aligned->data());
  }
  std::span<std::byte> span() const { return {aligned->data(), static_cast<size_t>(size)}; }
  bool operator==(const Memory& other) const { return std::ranges::equal(span(), other.span()); }

  int64_t size;
  std::unique_ptr<AlignedMemory> aligned;
};

struct Range {
  int64_t offset, bytes;
};

// Ranges that lie within blocks, fill them, cross their borders, and are empty.
std::vector<Range> ranges_of(int64_t block) {
  return {{0, kPage}, {kPage, block}, {2 * block, block}, {3 * block, 2 * block + kPage}, {7 * block - kPage, kPage}, {0, 0}};
}

// Writes ranges and reads them, several at once, in another order. Writes some of them again.
void write_and_read(FileSystem& files, const SwapOptions& options) {
  std::vector<Memory> given, got;  // declared before the file, which uses them until its end
  SwapFile swap(files, options);
  const std::vector<Range> ranges = ranges_of(options.block);
  for (uint64_t round = 1; round <= 2; ++round) {
    given.clear();
    got.clear();
    std::vector<SwapFile::Ticket> tickets;
    for (size_t i = 0; i < ranges.size(); ++i) {
      given.emplace_back(ranges[i].bytes, 10 * round + i);
      tickets.push_back(swap.write(ranges[i].offset, given.back().span()));
    }
    for (const SwapFile::Ticket ticket : tickets) swap.wait(ticket);
    tickets.clear();
    for (const Range& range : ranges) {
      got.emplace_back(range.bytes);
      tickets.push_back(swap.read(range.offset, got.back().span()));
    }
    while (!swap.is_done(tickets[3])) {
    }
    for (size_t i = tickets.size(); i-- > 0;) {
      swap.wait(tickets[i]);
      EXPECT_TRUE(got[i] == given[i]) << "range " << i << ", round " << round;
    }
  }
}

SwapOptions options_of(const std::vector<std::string>& folders, int64_t block, int depth) {
  return {.folders = folders, .bytes = 7 * block, .block = block, .depth = depth};
}

TEST(SwapFile, ReadsWhatWasWritten) {
  for (const int folders : {1, 2, 3}) {
    for (const int64_t block : {kPage, 4 * kPage}) {
      for (const int depth : {1, 3, 64}) {
        SCOPED_TRACE(testing::Message() << folders << " folders, blocks of " << block << ", depth " << depth);
        FaultFs files;
        std::vector<std::string> names{"/a", "/b", "/c"};
        names.resize(static_cast<size_t>(folders));
        for (const auto& name : names) files.make_folder(name);
        write_and_read(files, options_of(names, block, depth));
      }
    }
  }
}

TEST(SwapFile, ReadsWhatWasWrittenOnThisMachine) {
  for (const char* where : {".", "/tmp", "/dev/shm"}) {
    if (access(where, W_OK) != 0) continue;
    SCOPED_TRACE(where);
    const TestFolder one(where), other(where);
    PosixFs files({});
    write_and_read(files, options_of({one.path()}, int64_t{1} << 20, 8));
    write_and_read(files, options_of({one.path(), other.path()}, 3 * kPage, 4));
    EXPECT_TRUE(one.names().empty());
    EXPECT_TRUE(other.names().empty());
  }
}

// The memory of all transfers is pinned, or the system refuses to do so.
TEST(SwapFile, PinsMemory) {
  const TestFolder folder(".");
  const auto work = [&](bool is_allowed) {
    PosixFs files({});
    SwapFile swap(files, options_of({folder.path()}, kPage, 8));
    const Memory memory(14 * kPage, 5), same(14 * kPage, 5);
    const bool is_pinned = swap.pin(memory.span());
    EXPECT_TRUE(is_allowed || !is_pinned);
    swap.wait(swap.write(0, memory.span().first(7 * kPage)));
    swap.wait(swap.read(0, memory.span().last(7 * kPage)));
    EXPECT_TRUE(std::ranges::equal(memory.span().last(7 * kPage), same.span().first(7 * kPage)));
  };
  work(true);
  EXPECT_EXIT(in_child([&] {
                refuse(__NR_io_uring_register, ENOMEM);
                work(false);
              }),
              testing::ExitedWithCode(0), "");
}

TEST(SwapFileDeathTest, WorksWithoutUringAndWithoutUnnamedFiles) {
  const TestFolder folder(".");
  EXPECT_EXIT(in_child([&] {
                refuse(__NR_io_uring_setup, EPERM);
                refuse(__NR_openat, EOPNOTSUPP, 2, O_TMPFILE & ~O_DIRECTORY);
                PosixFs files({});
                write_and_read(files, options_of({folder.path(), folder.path()}, kPage, 4));
                EXPECT_TRUE(folder.names().empty());
              }),
              testing::ExitedWithCode(0), "io_uring is refused here");
}

TEST(SwapFile, LeavesNothingWhenItsProcessIsKilled) {
  const TestFolder folder(".");
  const pid_t child = fork();
  if (child == 0) {
    PosixFs files({});
    SwapFile swap(files, options_of({folder.path()}, kPage, 4));
    const Memory memory(7 * kPage, 3);
    swap.write(0, memory.span());
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(folder.names().empty());
}

// Writes and reads with trouble at call k, for every k. Returns the number of calls.
int64_t try_trouble(const Trouble& trouble, bool passes) {
  for (int64_t k = 0;; ++k) {
    FaultFs files;
    files.make_folder("/a");
    files.make_folder("/b");
    Trouble at_k = trouble;
    at_k.call = k;
    files.plan(at_k);
    std::string said;
    const Outcome outcome = outcome_of([&] {
      try {
        write_and_read(files, options_of({"/a", "/b"}, 2 * kPage, 3));
      } catch (const Fault& fault) {
        said = fault.what();
        throw;
      }
    });
    const auto calls = files.calls();
    if (k >= static_cast<int64_t>(calls.size())) {
      EXPECT_EQ(outcome, Outcome::done);
      return k;
    }
    SCOPED_TRACE(testing::Message() << "error " << trouble.error << " at call " << k << ": " << calls[static_cast<size_t>(k)]);
    const bool is_poll = calls[static_cast<size_t>(k)].starts_with("poll");
    if (passes || (is_poll && outcome == Outcome::done)) {
      EXPECT_EQ(outcome, Outcome::done) << said;
    } else {
      EXPECT_EQ(outcome, trouble.what == Trouble::What::death ? Outcome::death : Outcome::fault);
      if (outcome == Outcome::fault) {
        EXPECT_TRUE(said.find("/a/ztoolkit-swap") != said.npos || said.find("/b/ztoolkit-swap") != said.npos) << said;
      }
    }
  }
}

TEST(SwapFile, TroubleAtEveryCall) {
  using What = Trouble::What;
  EXPECT_GT(try_trouble({.what = What::error, .error = EIO}, false), 50);
  try_trouble({.what = What::error, .error = ENOSPC}, false);
  try_trouble({.what = What::death}, false);
  try_trouble({.what = What::error, .error = EINTR}, true);
  try_trouble({.what = What::short_count}, true);
}

TEST(SwapFile, TroubleOfOneTransferIsNotThatOfAnother) {
  FaultFs files;
  files.make_folder("/a");
  SwapFile swap(files, options_of({"/a"}, kPage, 4));
  const Memory first(kPage, 1), second(kPage, 2), got(kPage);
  files.plan({.what = Trouble::What::error, .error = EIO});
  const auto failing = swap.write(0, first.span());
  const auto good = swap.write(kPage, second.span());
  swap.wait(good);
  EXPECT_CONTAINS(test::message_of<Fault>([&] { swap.wait(failing); }), "cannot write '/a/ztoolkit-swap");
  swap.wait(swap.read(kPage, got.span()));
  EXPECT_TRUE(got == second);
}

TEST(SwapFile, AFullDiskIsFoundAtOnce) {
  FaultFs files({.capacity = 100 * kPage});
  files.make_folder("/a");
  files.make_folder("/b");
  const SwapFile swap(files, {.folders = {"/a", "/b"}, .bytes = 60 * kPage, .block = kPage});
  SwapOptions more{.folders = {"/a", "/b"}, .bytes = 50 * kPage, .block = kPage};
  const auto make = [&] { return SwapFile(files, more).options().bytes; };
  EXPECT_THROW(make(), DiskFull);
  EXPECT_CONTAINS(test::message_of<DiskFull>(make), "cannot reserve space for '/b/ztoolkit-swap");
  more.bytes = 40 * kPage;
  EXPECT_EQ(make(), 40 * kPage);
}

// Without a reservation the size is set, and what was not written can be read.
TEST(SwapFile, WorksWithoutReservation) {
  FaultFs files({.can_reserve = false});
  files.make_folder("/a");
  SwapFile swap(files, {.folders = {"/a"}, .bytes = 4 * kPage, .block = kPage});
  const Memory got(4 * kPage, 7), zeros(4 * kPage);
  swap.wait(swap.read(0, got.span()));
  EXPECT_TRUE(got == zeros);
}

TEST(SwapFile, RefusesMistakes) {
  FaultFs files;
  files.make_folder("/a");
  const auto made = [&](const SwapOptions& options) { return SwapFile(files, options).options().bytes; };
  EXPECT_SAYS("a swap file needs a folder", made({.folders = {}, .bytes = kPage}));
  EXPECT_SAYS("the size of a swap file must be a multiple of 4096 bytes, got 5", made({.folders = {"/a"}, .bytes = 5}));
  EXPECT_SAYS("the block of a swap file must be a multiple", made({.folders = {"/a"}, .bytes = kPage, .block = 100}));
  EXPECT_SAYS("must be at least 1, got 0", made({.folders = {"/a"}, .bytes = kPage, .depth = 0}));
  EXPECT_CONTAINS(test::message_of<Fault>([&] { made({.folders = {"/none"}, .bytes = kPage}); }),
                  "cannot create '/none/ztoolkit-swap");
  SwapFile swap(files, {.folders = {"/a"}, .bytes = 2 * kPage});
  const Memory memory(4 * kPage);
  EXPECT_SAYS("lie outside of a swap file of 8192 bytes", swap.read(kPage, memory.span().first(2 * kPage)));
  EXPECT_SAYS("lie outside", swap.read(-kPage, memory.span().first(kPage)));
  EXPECT_SAYS("all are multiples of 4096", swap.read(0, memory.span().first(100)));
  EXPECT_SAYS("all are multiples of 4096", swap.write(0, memory.span().subspan(8, kPage)));
}

}  // namespace

}  // namespace zt::io
