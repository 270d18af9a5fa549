// Helpers for tests that save bags in a FaultFs, cause an error, and check that the checkpoints are complete.
#pragma once

#include <memory>

#include "bag.h"
#include "folder/store.h"
#include "io/faults/fault_fs.h"
#include "io/faults/outcome.h"

namespace zt::test {

constexpr const char* kRoot = "runs/test";

// Saves a bag from a single rank, blocking.
void save(const std::shared_ptr<io::FaultFs>& files, int64_t step, int content, const ckpt::Retention& retention = {});

// Returns a file system with a checkpoint of step 1 and content 1.
std::shared_ptr<io::FaultFs> with_a_checkpoint();

// Returns the content of the checkpoint that a new process would load; -1 if there is none. Checks that it is not a mixture.
int content_of_latest(io::FaultFs& files);

// Checks the state after a crash. Requires that a save of content 2 ended with `outcome` in `before`. The latest checkpoint must
// be complete: with content 2 if the save was done, otherwise with 1 or 2. Garbage collection and a later save must work.
void check_after_crash(const io::FaultFs& before, const io::Crash& crash, io::Outcome outcome);

}  // namespace zt::test
