// Saves checkpoints: copies the tensors while training waits, and writes them to the disk while it continues.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "folder/store.h"
#include "folder/together.h"
#include "format/shard_image.h"
#include "reshard/contents.h"
#include "write_layout.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

enum class SaveMode : uint8_t {
  blocking,  // save() returns after the commit; tensors in host memory are not copied
  async,     // save() returns after copying what is in memory; a thread writes it, and reads what lies elsewhere
};
// Selects the behaviour of save() while the previous save is still being written.
enum class WhenBusy : uint8_t {
  wait,  // waits for it
  skip,  // saves nothing and returns false
};

struct SaveOptions {
  SaveMode mode = SaveMode::async;
  WhenBusy when_busy = WhenBusy::wait;
  Retention retention;
};

// Saves into folders of checkpoints (store.h). Calls are collective over the ranks, from one thread. The write layout and the
// snapshot's memory are reused as long as the objects have the same structure. Invariants: (1) at most one save runs at a time;
// (2) after save() has returned, tensors may change; (3) a save that fails leaves the earlier checkpoints unchanged, and removes
// its own folder if it can.
class Saver {
 public:
  Saver(std::shared_ptr<io::FileSystem> files, Ranks ranks);
  ~Saver();  // waits for the save under way and ignores its error
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Saves `objects` as the checkpoint of `step` in `root`. Returns false if it skipped the save. Errors are equal on all ranks: a
  // Fault for an error of this save or of the previous one, Misuse for objects that cannot be saved. Misuse and a full disk are
  // found before anything is written. Failure to remove an old checkpoint is only a warning.
  bool save(const std::string& root, int64_t step, const Objects& objects, const SaveOptions& options);
  // Waits until the save under way is committed. Throws its error, equal on all ranks, if it failed.
  void wait();

 private:
  struct Job;
  struct ReleasedData;

  void update_layout(const Contents& contents, std::string structure);
  std::string open_folder(const std::string& root, int64_t step, int64_t master) const;
  void take_snapshot(Job& job, const Contents& contents, SaveMode mode) const;
  void write(const Job& job) const;
  void finish(const Job& job, const std::vector<std::string>& packed) const;

  std::shared_ptr<io::FileSystem> files_;
  Ranks ranks_, background_;
  std::string structure_;
  WriteLayout layout_;
  std::unique_ptr<ShardImage> image_;
  std::unique_ptr<Job> job_;  // the last save, until wait() has collected its result
};

}  // namespace zt::ckpt
