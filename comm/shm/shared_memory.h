// Memory that several processes map: an anonymous file, reached through the descriptor that its maker holds. It has no name, so
// nothing is left behind however a run ends, and the size limit of /dev/shm does not apply.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace zt::comm {

// Where another process finds the memory. Plain data that can be sent.
struct MemoryAddress {
  pid_t process = 0;
  int descriptor = -1;
  size_t bytes = 0;
};

enum class Pages : uint8_t { now, on_demand };

class SharedMemory {
 public:
  // Zeroed memory of at least `bytes`, in whole pages, taken now or each at its first use. Fault, saying how much was wanted and
  // how much there is, when the machine or a limit does not give it.
  static SharedMemory create(size_t bytes, Pages pages);
  // The memory at `address`, whose maker has not called `hide` yet. Fault when this process may not see it.
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
  // Closes the descriptor: nobody can open the memory any more, who has it keeps it.
  void hide();
  // Gives the pages back to the system now, also where others still map them: reads give zeros from then on.
  void discard();

 private:
  void swap(SharedMemory& other) noexcept;
  void map(Pages pages, const std::string& doing);

  char* data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace zt::comm
