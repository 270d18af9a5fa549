// Tests saves and loads of several ranks of which one fails: all ranks end with one message, and the checkpoints are complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "ckpt/support/saved_content.h"
#include "load/loader.h"
#include "mesh/mesh.h"
#include "save/saver.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"
#include "zt/process/log.h"

namespace zt::test {
namespace {

using namespace zt::ckpt;
using namespace zt::io;
using What = Trouble::What;

constexpr int kRanks = 3;

Ranks ranks_of(const World& world) {
  comm::MeshOptions all;
  all.axes = {{"dp", -1}};
  return Ranks(comm::make_mesh(world, all)->world()->communicator);
}

SaveOptions by(SaveMode mode) {
  SaveOptions options;
  options.mode = mode;
  return options;
}

// One rank has an error: all ranks get it, and the next save works.
TEST(SaveRanks, AnErrorOnOneRankIsEveryRanks) {
  for (const SaveMode mode : {SaveMode::blocking, SaveMode::async}) {
    for (int64_t k = 0; k < 60; k += 7) {
      const auto files = with_a_checkpoint();
      files->plan({What::error, k, ENOSPC});
      std::array<Outcome, kRanks> outcomes{};
      spawn(kRanks, [&](const World& world) {
        const Ranks ranks = ranks_of(world);
        Saver saver(files, ranks);
        outcomes[world.rank] = outcome_of([&] {
          saver.save(kRoot, 2, objects_of(make_bag(world.rank, kRanks, 2)), by(mode));
          saver.wait();
        });
        if (world.rank == 0) files->plan({});
        ranks.broadcast("");
        saver.save(kRoot, 3, objects_of(make_bag(world.rank, kRanks, 3)), by(mode));
        saver.wait();
      });
      EXPECT_EQ(outcomes[0], outcomes[1]);
      EXPECT_EQ(outcomes[0], outcomes[2]);
      EXPECT_EQ(content_of_latest(*files), 3);
    }
  }
}

// One rank's process dies at each of its file-system calls. The other ranks continue as far as they can.
TEST(SaveRanks, DeathOfOneRankAtEveryCall) {
  for (const SaveMode mode : {SaveMode::blocking, SaveMode::async}) {
    for (int dying = 0; dying < 2; ++dying) {
      bool has_died = true;
      for (int64_t k = 0; has_died; ++k) {
        SCOPED_TRACE(fmt::format("rank {} dies at its call {}", dying, k));
        const auto files = with_a_checkpoint();
        const Outcome outcome = outcome_of([&] {
          spawn(kRanks, [&](const World& world) {
            const std::shared_ptr<io::FaultFs> own = files->for_other_process();
            if (world.rank == dying) own->plan({What::death, k});
            Saver saver(own, ranks_of(world));
            saver.save(kRoot, 2, objects_of(make_bag(world.rank, kRanks, 2)), by(mode));
            saver.wait();
          });
        });
        has_died = outcome == Outcome::death;
        EXPECT_TRUE(has_died || outcome == Outcome::done);
        for (const Left left : {Left::nothing, Left::some, Left::everything})
          check_after_crash(*files, {left, left, 1}, has_died ? Outcome::death : Outcome::done);
        EXPECT_TRUE(has_died || k > 5) << k;
      }
    }
  }
}

// One rank's object cannot be saved: all ranks stop at once and leave no partial folder, and the next save works.
TEST(SaveRanks, WhatOneRankCannotGiveIsEveryRanksError) {
  const std::function<void(Bag&)> spoils[] = {
      [](Bag& bag) { bag.tensors.begin()->second.region.count += 1; },                                      // not the data's size
      [](Bag& bag) { bag.tensors.begin()->second.data = bag.tensors.begin()->second.data.to(at::kMeta); },  // nothing to copy
  };
  for (const auto& spoil : spoils) {
    for (const SaveMode mode : {SaveMode::blocking, SaveMode::async}) {
      const auto files = with_a_checkpoint();
      std::array<std::string, kRanks> said;
      spawn(kRanks, [&](const World& world) {
        Saver saver(files, ranks_of(world));
        const auto bag = make_bag(world.rank, kRanks, 2);
        if (world.rank == 1) spoil(*bag);
        said[world.rank] = message_of<Error>([&] { saver.save(kRoot, 2, objects_of(bag), by(mode)); });
        saver.save(kRoot, 3, objects_of(make_bag(world.rank, kRanks, 3)), by(mode));
        saver.wait();
      });
      EXPECT_CONTAINS(said[0], "rank 1: ");
      EXPECT_EQ(said[0], said[1]);
      EXPECT_EQ(said[0], said[2]);
      EXPECT_EQ(content_of_latest(*files), 3);
      EXPECT_TRUE(partial(*files, kRoot).empty());
    }
  }
}

// Another program made the folder and did not sync it.
TEST(SaveRanks, TheNameOfTheFolderOutlastsACrash) {
  const auto files = std::make_shared<io::FaultFs>();
  files->make_folder("runs");
  files->make_folder(kRoot);
  save(files, 1, 1);
  EXPECT_EQ(content_of_latest(*files->after_crash({Left::nothing, Left::nothing, 1})), 1);
}

// The save succeeds even if an old checkpoint cannot be removed.
TEST(SaveRanks, AnOldCheckpointThatStaysIsAWarning) {
  const LogLevel before = set_log_level(LogLevel::error);
  int warned = 0;
  for (int64_t k = 0;; ++k) {
    const auto files = with_a_checkpoint();
    files->plan({What::error, k, EACCES});
    const Outcome outcome = outcome_of([&] { save(files, 2, 2, {1, 0}); });
    const auto calls = files->calls();
    files->plan({});
    if (k >= static_cast<int64_t>(calls.size())) break;
    SCOPED_TRACE(fmt::format("EACCES at call {}: {}", k, calls[static_cast<size_t>(k)]));
    // After the change of `latest` the save is done.
    const auto committed =
        std::ranges::find_if(calls, [](const std::string& call) { return call.starts_with("rename runs/test/latest"); });
    if (committed != calls.end() && k > committed - calls.begin() + 1) {
      EXPECT_EQ(outcome, Outcome::done);
      ++warned;
    }
    const int content = content_of_latest(*files);
    EXPECT_TRUE(content == 2 || (content == 1 && outcome != Outcome::done)) << content;
    save(files, 3, 3, {1, 0});
    EXPECT_EQ(complete(*files, kRoot).size(), 1U);
  }
  EXPECT_GT(warned, 3);
  set_log_level(before);
}

// An object's data do not match its region.
TEST(SaveRanks, APieceThatIsNoneIsRefused) {
  const auto files = with_a_checkpoint();
  const std::function<void(Bag::Held&)> spoils[] = {
      [](Bag::Held& held) { held.data = held.data.narrow(0, 0, held.data.numel() - 1); },
      [](Bag::Held& held) { held.data = at::zeros({2 * held.data.numel()}).slice(0, 0, std::nullopt, 2); },
      [](Bag::Held& held) {
        held.data = held.data.view({1, -1});
      },
      [](Bag::Held& held) { held.region.boxes[0].end[0] += 1; },
      [](Bag::Held& held) { held.region.first += 1; },
  };
  for (const auto& spoil : spoils) {
    const auto bag = make_bag(0, 1, 2);
    spoil(bag->tensors.at("cut"));
    Saver saver(files, Ranks());
    EXPECT_SAYS("the object that holds 'bag/cut' gives a", saver.save(kRoot, 2, objects_of(bag), {}));
    EXPECT_SAYS("the object that holds 'bag/cut' gives a",
                load(*files, Ranks(), std::string(kRoot) + "/" + folder_name(1), objects_of(bag), {}));
  }
}

// Only one rank passes an object twice.
TEST(SaveRanks, AWalkThatFailsOnOneRankIsEveryRanksError) {
  const auto files = with_a_checkpoint();
  std::array<std::string, kRanks> saved, loaded;
  spawn(kRanks, [&](const World& world) {
    const Ranks ranks = ranks_of(world);
    Saver saver(files, ranks);
    Objects objects = objects_of(make_bag(world.rank, kRanks, 2));
    if (world.rank == 2) objects.push_back(objects[0]);
    saved[world.rank] = message_of<Misuse>([&] { saver.save(kRoot, 2, objects, by(SaveMode::async)); });
    loaded[world.rank] = message_of<Misuse>([&] { load(*files, ranks, std::string(kRoot) + "/" + folder_name(1), objects, {}); });
  });
  for (const auto& said : {saved, loaded}) {
    EXPECT_CONTAINS(said[0], "rank 2: two things that are to be saved have the name");
    EXPECT_EQ(said[0], said[1]);
    EXPECT_EQ(said[0], said[2]);
  }
  EXPECT_EQ(content_of_latest(*files), 1);
}

}  // namespace
}  // namespace zt::test
