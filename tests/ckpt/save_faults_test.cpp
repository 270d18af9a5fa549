// A save that meets trouble at call k, for every k: the checkpoint before it loads, or the new one is complete.
#include <gtest/gtest.h>

#include <cerrno>

#include "bag.h"
#include "ckpt/outcome.h"
#include "fault_fs.h"
#include "loader.h"
#include "mesh.h"
#include "saver.h"
#include "store.h"
#include "support/message.h"
#include "support/spawn.h"
#include "verify.h"
#include "zt/error.h"

namespace zt::test {
namespace {

using namespace zt::ckpt;
using What = Trouble::What;

constexpr const char* kRoot = "runs/test";

void save(const std::shared_ptr<FaultFs>& files, int64_t step, int content, const Retention& retention = {}) {
  Saver saver(files, Ranks());
  SaveOptions options;
  options.mode = SaveMode::blocking;
  options.retention = retention;
  saver.save(kRoot, step, objects_of(make_bag(0, 1, content)), options);
}

// The content of what a fresh process finds; -1: no checkpoint.
int content_of_latest(FaultFs& files) {
  const auto name = latest(files, kRoot);
  if (!name) return -1;
  const auto bag = make_bag(0, 1, 0);
  load(files, Ranks(), std::string(kRoot) + "/" + *name, objects_of(bag), {});
  const auto content = static_cast<int>(*bag->values.at("step").get_if<int64_t>());
  EXPECT_TRUE(equal(*bag, *make_bag(0, 1, content))) << "content " << content << " is mixed";
  return content;
}

struct Case {
  const char* name;
  int64_t step;  // of the save that meets trouble
  Retention retention;
};
const std::vector<Case> kCases{{"a new step", 2, {}}, {"the same step again", 1, {}}, {"removing the last", 2, {1, 0}}};

struct Meeting {
  What what;
  int error;
};

std::shared_ptr<FaultFs> with_a_checkpoint() {
  auto files = std::make_shared<FaultFs>();
  save(files, 1, 1);
  return files;
}

// Calls check(files, outcome) after a save of content 2 with trouble at each of its calls.
void at_every_call(const Case& each, const Meeting& meeting, const std::function<void(FaultFs&, Outcome)>& check) {
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

// What a crash leaves is whole, and a later save and gc put all in order.
void check_after_crash(const FaultFs& before, const Crash& crash, Outcome outcome) {
  const std::shared_ptr<FaultFs> files = before.after_crash(crash);
  const int content = content_of_latest(*files);
  if (outcome == Outcome::done) EXPECT_EQ(content, 2);
  else EXPECT_TRUE(content == 1 || content == 2) << content;
  for (const auto& [step, name] : complete(*files, kRoot)) EXPECT_TRUE(verify(*files, std::string(kRoot) + "/" + name).empty());
  collect_garbage(*files, kRoot);
  EXPECT_TRUE(partial(*files, kRoot).empty());
  EXPECT_EQ(content_of_latest(*files), content);
  save(files, 3, 3, {1, 0});
  EXPECT_EQ(content_of_latest(*files), 3);
  EXPECT_EQ(complete(*files, kRoot).size(), 1U);
}

TEST(SaveFaults, DeathAtEveryCall) {
  int64_t tried = 0;
  for (const Case& each : kCases) {
    at_every_call(each, {What::death, 0}, [&](FaultFs& files, Outcome outcome) {
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
      at_every_call(each, {What::error, error}, [&](FaultFs& files, Outcome outcome) {
        check_after_crash(files, {Left::everything, Left::everything, 1}, outcome);
        check_after_crash(files, {}, outcome);
      });
    }
  }
}

TEST(SaveFaults, WhatPassesAtEveryCall) {
  for (const Meeting& meeting : {Meeting{What::error, EINTR}, Meeting{What::error, EAGAIN}, Meeting{What::short_count, 0}}) {
    at_every_call(kCases[0], meeting, [&](FaultFs& files, Outcome outcome) {
      EXPECT_EQ(outcome, Outcome::done);
      check_after_crash(files, {}, outcome);
    });
  }
}

// A disk that writes one bit wrong: whoever loads is told, and the checkpoint before loads.
TEST(SaveFaults, AFlippedBitAtEveryCall) {
  int found = 0;
  at_every_call(kCases[0], {What::bit_flip, 0}, [&](FaultFs& files, Outcome outcome) {
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
  EXPECT_GE(found, 2);  // the shard and the master are each written by one operation
}

// A rank that meets an error: all ranks get it, and the next save works.
TEST(SaveFaults, AnErrorOnOneRankIsEveryRanks) {
  for (const SaveMode mode : {SaveMode::blocking, SaveMode::async}) {
    for (int64_t k = 0; k < 60; k += 7) {
      const auto files = with_a_checkpoint();
      files->plan({What::error, k, ENOSPC});
      std::array<Outcome, 3> outcomes{};
      spawn(3, [&](const World& world) {
        comm::MeshOptions all;
        all.axes = {{"dp", -1}};
        const auto mesh = comm::make_mesh(world, all);
        Saver saver(files, Ranks(mesh->world()->communicator));
        SaveOptions options;
        options.mode = mode;
        outcomes[world.rank] = outcome_of([&] {
          saver.save(kRoot, 2, objects_of(make_bag(world.rank, 3, 2)), options);
          saver.wait();
        });
        if (world.rank == 0) files->plan({});
        mesh->world()->communicator->barrier();
        saver.save(kRoot, 3, objects_of(make_bag(world.rank, 3, 3)), options);
        saver.wait();
      });
      EXPECT_EQ(outcomes[0], outcomes[1]);
      EXPECT_EQ(outcomes[0], outcomes[2]);
      EXPECT_EQ(content_of_latest(*files), 3);
    }
  }
}

TEST(SaveFaults, AFullDiskIsFoundBeforeAnythingIsWritten) {
  FaultFsOptions small;
  small.capacity = 1 << 20;
  const auto files = std::make_shared<FaultFs>(small);
  EXPECT_NE(message_of<Fault>([&] { save(files, 1, 1); }).find("space"), std::string::npos);
  EXPECT_EQ(content_of_latest(*files), -1);
  EXPECT_TRUE(partial(*files, kRoot).empty());
}

}  // namespace
}  // namespace zt::test
