// Memory that several processes map. It is an anonymous file (memfd_create), which other processes open through a descriptor of
// its creator. The file has no name, so nothing is left behind however a run ends, and the size limit of /dev/shm does not apply.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zt::comm {

// Tells another process where to open the memory. Plain data that can be sent.
struct MemoryAddress {
  pid_t process = 0;
  int descriptor = -1;
  size_t bytes = 0;
};

// When pages are allocated: all in `create`, or each at its first use.
enum class Pages : uint8_t { now, on_demand };

class SharedMemory {
 public:
  // Creates zeroed memory of at least `bytes`, in whole pages. Throws Fault if the machine or a limit does not allow it; the
  // message says how much was wanted and how much is left.
  static SharedMemory create(size_t bytes, Pages pages);
  // Maps the memory at `address`, whose creator has not called `hide` yet. Throws Fault if this process may not open it.
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
  MemoryAddress address() const;
  // Closes the descriptor. From then on the memory cannot be opened; existing mappings stay.
  void hide();
  // Gives the pages back to the system at once, even if other processes still map them. Later reads return zeros.
  void discard();

 private:
  void swap(SharedMemory& other) noexcept;
  void map(Pages pages, const std::string& doing);

  char* data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace zt::comm
