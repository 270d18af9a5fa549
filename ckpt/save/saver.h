// Writes checkpoints: a snapshot while the training waits, the disk while it goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "folder/store.h"
#include "folder/together.h"
#include "format/shard_image.h"
#include "reshard/contents.h"
#include "save_plan.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

enum class SaveMode : uint8_t {
  blocking,  // save() returns with the checkpoint committed; tensors of the host are not copied
  async,     // save() returns when the tensors are copied; a thread writes them
};
enum class WhenBusy : uint8_t {
  wait,  // for the save that still runs
  skip,  // leave this one out
};

struct SaveOptions {
  SaveMode mode = SaveMode::async;
  WhenBusy when_busy = WhenBusy::wait;
  Retention retention;
};

// Saves into folders of checkpoints (store.h). Calls are collective over the ranks, from one thread. What was planned is used
// again as long as the objects have the same structure, and so is the memory of snapshots. Invariants: (1) at most one save is
// under way; (2) when save() has returned, tensors may change; (3) a save that fails leaves the earlier checkpoints as they were,
// and removes its folder where it can.
class Saver {
 public:
  Saver(std::shared_ptr<io::FileSystem> files, Ranks ranks);
  ~Saver();  // waits; an error is lost
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Saves what `objects` hold as the checkpoint of `step` in `root`; false: skipped. On all ranks: a Fault for an error of this
  // save or of the one before, a Misuse for what cannot be saved; a full disk and a Misuse are found before anything is written.
  // A checkpoint that `retention` lets go and that cannot be removed is a warning.
  bool save(const std::string& root, int64_t step, const Objects& objects, const SaveOptions& options);
  // Until the save under way is committed. Fault, on all ranks, if it failed.
  void wait();

 private:
  struct Job;

  bool is_busy_anywhere() const;
  void plan(const Contents& contents, std::string structure);
  std::string open_folder(const std::string& root, int64_t step, int64_t master) const;
  void take(Job& job, const Contents& contents, SaveMode mode) const;
  void run(Job& job) const;
  void write(const Job& job) const;
  void finish(const Job& job, const std::vector<std::string>& packed) const;

  std::shared_ptr<io::FileSystem> files_;
  Ranks ranks_, background_;
  std::string structure_;
  SavePlan plan_;
  std::unique_ptr<ShardImage> image_;
  std::unique_ptr<Job> job_;  // under way, or done and not yet waited for
};

}  // namespace zt::ckpt
