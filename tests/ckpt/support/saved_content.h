// Checkpoints of bags in a FaultFs: one is saved, something happens, what is found must be whole.
#pragma once

#include <memory>

#include "bag.h"
#include "folder/store.h"
#include "io/fault_fs.h"
#include "io/outcome.h"

namespace zt::test {

constexpr const char* kRoot = "runs/test";

// A blocking save by a rank alone.
void save(const std::shared_ptr<io::FaultFs>& files, int64_t step, int content, const ckpt::Retention& retention = {});

// With a checkpoint of step 1 and content 1.
std::shared_ptr<io::FaultFs> with_a_checkpoint();

// The content of what a fresh process finds; -1: no checkpoint.
int content_of_latest(io::FaultFs& files);

// A save of content 2 ended by `outcome` in `before`, and the machine crashed: what is left is whole - content 2 if the save was
// done, else 1 or 2 -, and a later save and gc put all in order.
void check_after_crash(const io::FaultFs& before, const io::Crash& crash, io::Outcome outcome);

}  // namespace zt::test
