// Operations under way on one file, with the resumption of short counts and the retries of transient errors.
#pragma once

#include <string>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::io {

// What the messages of errors need to know about a transfer. The caller keeps `path` and `files`.
struct TransferContext {
  FileSystem& files;
  const std::string& path;
  int64_t bytes;  // size of the whole file when it is written
};

// A slot is one operation from start() to finish_one(). Its number, below `depth`, tells the caller which memory is in use.
// Threads: one at a time.
class TransferQueue {
 public:
  TransferQueue(const TransferContext& context, File& file, Direction direction, int depth);
  // Waits for the operations under way, so that their memory may be freed.
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  int under_way() const { return under_way_; }
  bool is_full() const { return free_.empty(); }
  // Returns a free slot; start() has to follow. Requires that the queue is not full.
  int take_slot();

  // Starts to move the bytes [offset, offset + bytes), which are aligned as the file requires. A read ends when `needed` bytes
  // have arrived: its last block may reach past the end of the file.
  void start(int slot, int64_t offset, std::byte* memory, int64_t bytes, int64_t needed);
  // Waits until an operation has moved all of its bytes. Returns its slot, which is free again.
  // Throws: Fault when an operation fails, and when the file ends before the needed bytes.
  int finish_one();

 private:
  struct Slot {
    Operation operation;  // the part that is still to be moved
    int64_t needed = 0;   // bytes of it
    int retries = 0;      // in a row, without progress
  };

  void submit(const Slot& slot);
  bool advance(Slot& slot, int64_t result);
  void count_retry(Slot& slot, int64_t result);

  const TransferContext context_;
  File& file_;
  const Direction direction_;
  std::vector<Slot> slots_;
  std::vector<int> free_;
  int under_way_ = 0;
};

// Moves all bytes of one operation and waits for it. Throws: Fault, as finish_one.
void transfer(const TransferContext& context, File& file, const Operation& operation);

// Waits until content and size of the file survive a crash of the machine. Throws: Fault.
void sync(const TransferContext& context, File& file);

}  // namespace zt::io
