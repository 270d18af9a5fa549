// offload.move over a file system in memory: equal bits, and what happens when the disk fails at any call.
#include "move/move.h"

#include <gtest/gtest.h>

#include "io/faults/fault_fs.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "support/spawn.h"

namespace zt::offload {

namespace {

using test::Config;

// Everything travels, in slices of 4,096 elements: the MLPs of the model have two.
MoveOptions all_in(const std::shared_ptr<io::FileSystem>& files) {
  MoveOptions options;
  options.optimizer = options.gradients = Where::nvme;
  options.folder = {"/a", "/b"};
  options.slice = kSliceAlign;
  options.block = 8192;
  options.files = files;
  return options;
}

std::shared_ptr<io::FaultFs> make_files(const io::FaultFsOptions& options = {}) {
  auto files = std::make_shared<io::FaultFs>(options);
  for (const char* folder : {"/a", "/b"}) files->make_folder(folder);
  return files;
}

Config config_of(int stage, std::shared_ptr<Pass> pass) {
  Config config{.ranks = 2, .micro_batches = 2, .stage = stage};
  config.last_pass = std::move(pass);
  return config;
}

TEST(Move, HasTheBitsOfMemory) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    Config plain = config_of(stage, nullptr);
    for (const char* every : {"step", "micro_batch"}) {
      plain.reduce_every = every;
      Config moved = plain;
      MoveOptions options = all_in(make_files());
      if (stage == 3) options.parameters = Where::nvme;
      moved.last_pass = make_move(options);
      test::expect_equal(test::train(plain), test::train(moved));
    }
  }
}

TEST(Move, HasTheBitsOfMemoryWhateverStays) {
  const auto plain = test::train(config_of(2, nullptr));
  for (const double ratio : {0.0, 0.3, 0.8}) {
    MoveOptions options = all_in(make_files());
    options.ratio = ratio;
    test::expect_equal(plain, test::train(config_of(2, make_move(options))));
    options.ratio.reset();
    options.memory = static_cast<int64_t>(ratio * 100'000);
    options.checksum = true;
    test::expect_equal(plain, test::train(config_of(2, make_move(options))));
  }
}

// The outcome of two steps on one rank: the losses, or what was thrown.
struct Attempt {
  std::vector<double> losses;
  std::string making, stepping, later;
};

Attempt attempt(const MoveOptions& options) {
  Config config{.ranks = 1, .micro_batches = 1, .stage = -1};
  config.last_pass = make_move(options);
  Attempt result;
  std::unique_ptr<test::RankRun> run;
  result.making = test::message_of<std::exception>([&] { run = std::make_unique<test::RankRun>(World{}, config); });
  if (!run) return result;
  result.stepping = test::message_of<Fault>([&] {
    for (int step = 0; step < 2; ++step) result.losses.push_back(run->step().loss);
    run->trainer().drain();
  });
  if (result.stepping != "no error") result.later = test::message_of<Fault>([&] { run->step(); });
  return result;
}

// The calls that two steps make.
int64_t count_calls(const MoveOptions& options, const io::FaultFs& files) {
  attempt(options);
  return std::ssize(files.calls());
}

TEST(Move, EndsTheStepWhereverTheDiskFails) {
  const auto files = make_files();
  const MoveOptions options = all_in(files);
  const std::vector<double> losses = attempt(options).losses;
  files->plan({});
  const int64_t calls = count_calls(options, *files);
  ASSERT_GT(calls, 100);
  int failed = 0;
  for (int64_t call = 0; call < calls; call += 7) {
    SCOPED_TRACE(call);
    files->plan({.what = io::Trouble::What::error, .call = call, .error = EIO});
    const Attempt result = attempt(options);
    if (result.making != "no error") {
      EXPECT_NE(result.making.find("Input/output error"), std::string::npos) << result.making;
    } else if (result.stepping != "no error") {
      ++failed;
      EXPECT_CONTAINS(result.stepping, "Input/output error");
      EXPECT_CONTAINS(result.stepping, "unit '");
      const bool is_of_action = result.stepping.starts_with("action FETCH") || result.stepping.starts_with("action EVICT");
      if (is_of_action) EXPECT_CONTAINS(result.later, "this trainer cannot be used any more");
      else EXPECT_CONTAINS(result.stepping, "'grad_shard' of unit '");  // the test reads gradients after a step
    } else {
      EXPECT_EQ(result.losses, losses);
    }
  }
  EXPECT_GT(failed, 20);
}

TEST(Move, TakesTransfersThatAreCutShort) {
  const auto files = make_files();
  const MoveOptions options = all_in(files);
  const std::vector<double> losses = attempt(options).losses;
  files->plan({.what = io::Trouble::What::short_count, .call = 20, .calls = 50});
  const Attempt result = attempt(options);
  EXPECT_EQ(result.stepping, "no error");
  EXPECT_EQ(result.losses, losses);
}

TEST(Move, FindsFlippedBits) {
  const auto files = make_files();
  MoveOptions options = all_in(files);
  options.checksum = true;
  const std::vector<double> losses = attempt(options).losses;
  files->plan({});
  const int64_t calls = count_calls(options, *files);
  int found = 0;
  for (int64_t call = 0; call < calls; call += 11) {
    SCOPED_TRACE(call);
    files->plan({.what = io::Trouble::What::bit_flip, .call = call});
    const Attempt result = attempt(options);
    const std::string text = result.making == "no error" ? result.stepping : result.making;
    if (text == "no error") {
      EXPECT_EQ(result.losses, losses);  // the last bytes that are written are not read again
      continue;
    }
    ++found;
    EXPECT_CONTAINS(text, "returned other bytes than were written");
  }
  EXPECT_GT(found, 10);
}

TEST(Move, RefusesADiskThatIsTooSmallForAllRanks) {
  const auto files = make_files({.capacity = 200'000});
  test::spawn(2, [&](const World& world) {
    const std::string said = test::message_of<Misuse>([&] { test::make_trainer(world, config_of(1, make_move(all_in(files)))); });
    EXPECT_CONTAINS(said, "the 2 ranks of this machine need ");
    EXPECT_CONTAINS(said, " in '/a' (with a block of 8.0 KiB for each rank), and its disk has 195 KiB left");
  });
}

TEST(Move, RefusesFoldersThatAreNone) {
  const auto refused = [](const std::string& folder) {
    const auto files = make_files();
    MoveOptions options = all_in(files);
    options.folder = {folder};
    return attempt(options).making;
  };
  EXPECT_CONTAINS(refused("/c"), "the folder '/c' does not exist: make it");
}

TEST(Move, RefusesOptimizersOfWholeTensors) {
  Config config = config_of(1, make_move(all_in(make_files())));
  config.optimizer = "muon";
  test::spawn(2, [&](const World& world) {
    EXPECT_SAYS("offload.move: muon updates 'blocks.0.attention", test::make_trainer(world, config));
  });
}

std::string wrong(const Value::Table& options) {
  return test::message_of<Misuse>([&] { parse_move_options(options); });
}

TEST(Move, RefusesOptionsThatDoNotFit) {
  EXPECT_CONTAINS(wrong({{"optimizer", "nvme"}}), "needs a folder");
  EXPECT_CONTAINS(wrong({{"optimizer", "nvem"}}), "must be one of 'device', 'host', 'nvme', got 'nvem'");
  EXPECT_CONTAINS(wrong({{"ratio", 0.5}, {"memory", 10}}), "give one of them");
  EXPECT_CONTAINS(wrong({{"ratio", 1.5}}), "offload.move.ratio");
  EXPECT_CONTAINS(wrong({{"slice", 100}}), "must be a positive multiple of 4096 elements, got 100");
  EXPECT_CONTAINS(wrong({{"block", 100}}), "must be a multiple of 4096 bytes, got 100");
  MoveOptions options = all_in(make_files());
  options.staging = 1000;
  EXPECT_CONTAINS(attempt(options).making, "staging = 1000 bytes for each kind of data, but STEP ");
  options = all_in(make_files());
  options.parameters = Where::nvme;
  EXPECT_CONTAINS(attempt(options).making, "apply zero.shard{stage = 3, node_shared = false}");
}

}  // namespace

}  // namespace zt::offload
