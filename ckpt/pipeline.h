// Operations under way on one file. Short counts are resumed and passing errors repeated here, once for all.
#pragma once

#include <string>
#include <vector>

#include "fs.h"

namespace zt::ckpt {

// What is moved, for messages.
struct Subject {
  FileSystem& files;
  const std::string& path;
  int64_t bytes;  // of the whole file when it is written
};

// One thread. A slot is an operation from start() to finish_one(); its number also tells the caller which memory is in use.
class Pipeline {
 public:
  Pipeline(const Subject& subject, File& file, Direction direction, int depth);
  ~Pipeline();  // waits for what is under way, so that its memory can go
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  int under_way() const { return under_way_; }
  bool is_full() const { return free_.empty(); }
  int take_slot();  // when not full; start() follows

  // Moves [offset, offset + bytes), aligned as the file wants it. A read is done when `needed` bytes are there: its last block
  // may reach past the end of the file.
  void start(int slot, int64_t offset, std::byte* memory, int64_t bytes, int64_t needed);
  // Waits until an operation is done: its slot, free again. Fault when one failed, and when a file ends before what is needed.
  int finish_one();

 private:
  struct Slot {
    Operation operation;
    int64_t needed = 0;
    int repeats = 0;  // without progress
  };

  void submit(const Slot& slot);
  bool advance(Slot& slot, int64_t result);
  void note_no_progress(Slot& slot, int64_t result);

  const Subject subject_;
  File& file_;
  const Direction direction_;
  std::vector<Slot> slots_;
  std::vector<int> free_;
  int under_way_ = 0;
};

}  // namespace zt::ckpt
