// Data of one rank that do not fit into its memory: one array of bytes on disk, which is read and written in the background.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::io {

struct SwapOptions {
  std::vector<std::string> folders;  // at least one. With several, block i lies in folder i % folders.size()
  int64_t bytes = 0;                 // of the array; a multiple of kSwapAlignment
  int64_t block = int64_t{4} << 20;  // most bytes of one operation; a multiple of kSwapAlignment
  int depth = 8;                     // operations under way at once; more of them wait until some have ended
  Caching caching = Caching::direct;
};

inline constexpr int64_t kSwapAlignment = 4096;  // bytes, of offsets, sizes and addresses

class TransferQueue;

// Its files have no name: nothing of them is left when the process ends, however it ends. What was not written reads as zeros.
//
// A transfer moves bytes between the array and memory. Transfers end in any order, so the caller waits for one before it starts
// another one that touches the same bytes. The memory must stay valid until `wait` has returned.
// Threads: one at a time. The file system has to live as long as the object.
class SwapFile {
 public:
  // Creates the files and reserves their disk space. Throws: Misuse for options that do not fit; Fault, with the folder, if a
  // file cannot be created; DiskFull.
  SwapFile(FileSystem& files, SwapOptions options);
  // Waits for the transfers under way.
  ~SwapFile();
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  const SwapOptions& options() const { return options_; }
  // Returns whether reads and writes of all folders bypass the page cache.
  bool is_direct() const;
  // Keeps `memory` in place, which saves work in each operation within it. Call it once, before the first transfer. Returns
  // whether the system allows it (RLIMIT_MEMLOCK).
  bool pin(std::span<std::byte> memory);

  // A transfer under way. Each is given to `wait` once.
  using Ticket = int;
  // Start to move bytes from `offset` on. Offset, size and address are multiples of kSwapAlignment. Throw Misuse for others, and
  // for bytes outside of the array.
  Ticket read(int64_t offset, std::span<std::byte> memory);
  Ticket write(int64_t offset, std::span<const std::byte> memory);
  // Returns whether `wait` would return at once. Starts operations that waited for others.
  bool is_done(Ticket ticket);
  // Waits until the transfer has ended. Throws: Fault, with the folder and the reason, if it failed; the array then has the old
  // bytes, the new ones, or some of both.
  void wait(Ticket ticket);

 private:
  struct Transfer {
    int operations = 0;  // that have not ended
    std::exception_ptr fault;
  };
  struct Waiting {
    FileOperation operation;
    Ticket ticket;
  };

  Ticket start(IoDirection direction, int64_t offset, std::byte* memory, int64_t bytes);
  void start_waiting();
  void finish(int lane, const std::exception_ptr& fault);

  const SwapOptions options_;
  std::vector<std::string> paths_;  // by folder, for messages
  std::unique_ptr<File> file_;
  std::unique_ptr<TransferQueue> queue_;
  std::vector<Transfer> transfers_;  // by ticket
  std::vector<Ticket> free_;
  std::vector<Ticket> of_lane_;
  std::deque<Waiting> waiting_;  // operations that the queue has no lane for
};

}  // namespace zt::io
