// Activations in files: equal bits, the memory that they leave, and what the verifier finds.
#include <gtest/gtest.h>

#include "io/faults/fault_fs.h"
#include "move/move.h"
#include "numerics/support/training.h"
#include "support/message.h"
#include "zt/plan/allocation.h"

namespace zt::offload {

namespace {

using test::Config;

std::shared_ptr<Pass> pass_of(int stay = 0) {
  auto files = std::make_shared<io::FaultFs>();
  files->make_folder("/a");
  MoveOptions options;
  options.activations = Where::nvme;
  options.activations_stay = stay;
  options.activation_bytes = 1;
  options.folder = {"/a"};
  options.files = std::move(files);
  return make_move(options);
}

TEST(MovedValues, HaveTheBitsOfMemory) {
  for (const int recompute : {0, 1, 2}) {
    for (const bool is_split : {false, true}) {
      for (const int stage : {-1, 3}) {
        SCOPED_TRACE(testing::Message() << recompute << is_split << stage);
        Config plain{.ranks = stage < 0 ? 1 : 2, .micro_batches = 2, .stage = stage, .recompute_every = recompute};
        plain.split_backward = is_split;
        Config moved = plain;
        moved.last_pass = pass_of();
        test::expect_equal(test::train(plain), test::train(moved));
      }
    }
  }
}

TEST(MovedValues, HaveTheBitsOfMemoryByHandAndWithFrozenParts) {
  Config plain{.micro_batches = 2};
  for (const bool by_hand : {false, true}) {
    for (const char* frozen : {"", "blocks\\.0"}) {
      plain.by_hand = by_hand;
      plain.frozen = frozen;
      Config moved = plain;
      moved.last_pass = pass_of(1);
      test::expect_equal(test::train(plain), test::train(moved));
    }
  }
}

}  // namespace

}  // namespace zt::offload
