// Memory that several processes map. It is an anonymous file (memfd_create), which other processes open through a descriptor of
// its creator. The file has no name, so nothing is left behind however a run ends, and the size limit of /dev/shm does not apply.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace zt::comm {

// Tells another process where to open the memory. Plain data that can be sent.
struct MemoryAddress {
  pid_t process = 0;
  int descriptor = -1;
  size_t bytes = 0;
};

// When pages are allocated: all at once, or each at its first use.
enum class Pages : uint8_t { now, on_demand };

// Returns `bytes` rounded up to whole pages, at least one.
size_t whole_pages(size_t bytes);

class SharedMemory {
 public:
  // Creates zeroed memory of at least `bytes`, in whole pages. Throws Fault if the machine or a limit does not allow it; the
  // message says how much was wanted and how much is left.
  static SharedMemory create(size_t bytes, Pages pages);
  // Maps the memory at `address`, whose creator has not called `hide` yet, and keeps a descriptor. Throws Fault if this process
  // may not open it.
  static SharedMemory open(const MemoryAddress& address);

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }
  MemoryAddress address() const;
  // Closes the descriptor. From then on the memory cannot be opened or extended by this process; existing mappings stay.
  void hide();
  // Appends `bytes`, in whole pages, and allocates them. Returns their offset. They are not mapped here: see SharedPart. Only one
  // process may extend. Throws Fault as `create`.
  size_t extend(size_t bytes);
  // Gives the pages back to the system at once, even if other processes still map them. Later reads return zeros.
  void discard();

 private:
  void swap(SharedMemory& other) noexcept;
  void map(Pages pages, const std::string& doing);

  char* data_ = nullptr;
  size_t bytes_ = 0;
  size_t extended_ = 0;  // bytes that were appended
  int descriptor_ = -1;
};

// A mapping of bytes that were appended to a SharedMemory. It may live longer than the SharedMemory.
class SharedPart {
 public:
  SharedPart() = default;
  // Maps `bytes` at `offset` of the memory, both as `extend` returned and got them. Throws Fault if the process cannot map them.
  SharedPart(const SharedMemory& memory, size_t offset, size_t bytes);
  ~SharedPart();
  SharedPart(SharedPart&& other) noexcept { *this = std::move(other); }
  SharedPart& operator=(SharedPart&& other) noexcept;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  size_t offset() const { return offset_; }
  // As SharedMemory::discard.
  void discard();

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0, offset_ = 0;
};

}  // namespace zt::comm
