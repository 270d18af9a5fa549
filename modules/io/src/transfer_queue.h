// Operations under way on one file. Short counts are continued and transient errors are retried.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::io {

// The facts about a transfer that error messages need. `files` and `path` have to outlive it.
struct TransferContext {
  FileSystem& files;
  const std::string& path;
  int64_t bytes;  // size of the whole file; of a file being written, the size that it is to have
};

// Runs up to `depth` operations at once, each in a lane of its own. A lane is a number in [0, depth) that belongs to one
// operation from take_lane() until its end is returned. Callers use the number to give each operation its own memory.
// Threads: one at a time.
class TransferQueue {
 public:
  TransferQueue(const TransferContext& context, File& file, int depth);
  // Waits for the operations under way, so that the caller may free their memory.
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  int under_way() const { return under_way_; }
  bool is_full() const { return free_.empty(); }
  // Returns a free lane; the caller then calls start() with it. Requires that the queue is not full.
  int take_lane();

  // Starts an operation, whose tag is its lane. A read is complete when its first `needed` bytes have arrived, because its last
  // block may reach past the end of the file. `path` is that of the part of a striped file, for messages; null means the
  // context's.
  void start(const FileOperation& operation, int64_t needed, const std::string* path = nullptr);
  // The end of an operation: its lane, which is free again, and the Fault if it failed or the file ends before the needed bytes.
  struct End {
    int lane = 0;
    std::exception_ptr fault = nullptr;
  };
  // Waits until an operation has moved its needed bytes or has failed.
  End wait_one();
  // Returns the end of an operation that has one already, else nullopt. It pauses only before a retry.
  std::optional<End> poll_one();
  // As wait_one(), but returns the lane and throws the Fault.
  int finish_one();

 private:
  struct Lane {
    FileOperation operation;  // the part that is still to be moved
    int64_t needed = 0;       // bytes of this part that must arrive
    const std::string* path = nullptr;
    int retries = 0;  // retries in a row without progress
  };

  void submit(const Lane& lane);
  std::optional<End> take(const Completion& done);
  bool advance(Lane& lane, int64_t result);
  void count_retry(Lane& lane, int64_t result);

  const TransferContext context_;
  File& file_;
  std::vector<Lane> lanes_;
  std::vector<int> free_;
  int under_way_ = 0;
};

// Moves all bytes of one operation and waits for it. Throws: Fault, as finish_one() does.
void transfer(const TransferContext& context, File& file, const FileOperation& operation);

// Reserves disk space for `bytes` bytes and sets the size. Returns false, and does nothing, where the file system cannot do so: a
// full disk is then found by a write. Throws: Fault.
bool reserve(const TransferContext& context, File& file, int64_t bytes);

// Waits until the file's content and size are on the disk, so that they survive a crash of the machine. Throws: Fault.
void sync(const TransferContext& context, File& file);

}  // namespace zt::io
