// Tests saves with an injected fault at file-system call k, for every k. Afterwards the previous checkpoint loads, or the new one
// is complete.
#include <gtest/gtest.h>

#include <cerrno>

#include "ckpt/support/saved_content.h"
#include "load/loader.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace zt::ckpt;
using namespace zt::io;
using What = Trouble::What;

struct Case {
  const char* name;
  int64_t step;  // of the save with the injected fault
  Retention retention;
};
const std::vector<Case> kCases{{"a new step", 2, {}}, {"the same step again", 1, {}}, {"removing the last", 2, {1, 0}}};

struct Meeting {
  What what;
  int error;
};

// For each file-system call of a save of content 2: saves with a fault at that call, then calls check(files, outcome).
void at_every_call(const Case& each, const Meeting& meeting, const std::function<void(io::FaultFs&, Outcome)>& check) {
  for (int64_t k = 0;; ++k) {
    const auto files = with_a_checkpoint();
    files->plan({meeting.what, k, meeting.error});
    const Outcome outcome = outcome_of([&] { save(files, each.step, 2, each.retention); });
    const auto calls = files->calls();
    if (k >= static_cast<int64_t>(calls.size())) {
      EXPECT_GT(k, 20);
      return;
    }
    SCOPED_TRACE(fmt::format("{}, trouble at call {}: {}", each.name, k, calls[static_cast<size_t>(k)]));
    files->plan({});
    check(*files, outcome);
  }
}

TEST(SaveFaults, DeathAtEveryCall) {
  int64_t tried = 0;
  for (const Case& each : kCases) {
    at_every_call(each, {What::death, 0}, [&](io::FaultFs& files, Outcome outcome) {
      EXPECT_EQ(outcome, Outcome::death);
      for (const Left data : {Left::nothing, Left::some, Left::everything}) {
        for (const Left names : {Left::nothing, Left::some, Left::everything}) {
          for (uint64_t seed = 1; seed <= (data == Left::some || names == Left::some ? 3U : 1U); ++seed, ++tried)
            check_after_crash(files, {data, names, seed}, outcome);
        }
      }
    });
  }
  RecordProperty("crashes", std::to_string(tried));
}

TEST(SaveFaults, AnErrorAtEveryCall) {
  for (const Case& each : kCases) {
    for (const int error : {ENOSPC, EIO}) {
      at_every_call(each, {What::error, error}, [&](io::FaultFs& files, Outcome outcome) {
        check_after_crash(files, {Left::everything, Left::everything, 1}, outcome);
        check_after_crash(files, {}, outcome);
      });
    }
  }
}

TEST(SaveFaults, WhatPassesAtEveryCall) {
  for (const Meeting& meeting : {Meeting{What::error, EINTR}, Meeting{What::error, EAGAIN}, Meeting{What::short_count, 0}}) {
    at_every_call(kCases[0], meeting, [&](io::FaultFs& files, Outcome outcome) {
      EXPECT_EQ(outcome, Outcome::done);
      check_after_crash(files, {}, outcome);
    });
  }
}

// The disk writes one bit wrong. A load that reads this bit fails, and the previous checkpoint still loads.
TEST(SaveFaults, AFlippedBitAtEveryCall) {
  int found = 0;
  at_every_call(kCases[0], {What::bit_flip, 0}, [&](io::FaultFs& files, Outcome outcome) {
    EXPECT_EQ(outcome, Outcome::done);
    const std::string damaged = std::string(kRoot) + "/" + folder_name(2);
    const auto wrong = verify(files, damaged);
    const auto bag = make_bag(0, 1, 0);
    const Outcome loaded = outcome_of([&] { load(files, Ranks(), damaged, objects_of(bag), {}); });
    if (loaded == Outcome::done) EXPECT_TRUE(equal(*bag, *make_bag(0, 1, 2)));
    else EXPECT_FALSE(wrong.empty());
    found += wrong.empty() ? 0 : 1;
    const auto before = make_bag(0, 1, 0);
    load(files, Ranks(), std::string(kRoot) + "/" + folder_name(1), objects_of(before), {});
    EXPECT_TRUE(equal(*before, *make_bag(0, 1, 1)));
  });
  EXPECT_GE(found, 2);  // at least one write for the shard and one for the master
}

std::shared_ptr<io::FaultFs> disk_of(int64_t bytes) {
  FaultFsOptions options;
  options.capacity = bytes;
  return std::make_shared<io::FaultFs>(options);
}

int64_t used_by_a_save() {
  constexpr int64_t kEnough = 1 << 30;
  const auto files = disk_of(kEnough);
  save(files, 1, 1);
  return kEnough - files->free_bytes("/");
}

TEST(SaveFaults, AFullDiskIsFoundBeforeAnythingIsWritten) {
  const auto files = disk_of(used_by_a_save() - 1);
  const std::string said = message_of<Fault>([&] { save(files, 1, 1); });
  EXPECT_CONTAINS(said, "No space left on device: ");
  EXPECT_CONTAINS(said, "the remains of unfinished saves (ztoolkit ckpt gc)");
  EXPECT_EQ(content_of_latest(*files), -1);
  EXPECT_TRUE(partial(*files, kRoot).empty());
}

TEST(SaveFaults, ADiskWithRoomForTheCheckpointIsEnough) {
  constexpr int64_t kBlocksOfFilesAndFolders = 64 << 10;
  const auto files = disk_of(used_by_a_save() + kBlocksOfFilesAndFolders);
  save(files, 1, 1);
  EXPECT_EQ(content_of_latest(*files), 1);
}

}  // namespace
}  // namespace zt::test
