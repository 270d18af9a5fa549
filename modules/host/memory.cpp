#include "memory.h"

#include <malloc.h>

namespace zt::host {

// Without this, malloc takes each large temporary from the kernel and gives it back at once; a 64 MiB addition then spends
// six sevenths of its time in page faults (37 ms against 6 ms).
//
// It holds for the main thread's arena. Other threads have arenas of 64 MiB heaps, and what does not fit into one still
// comes from the kernel: ranks as threads (--threads) are for tests and debugging and pay for it. One arena for all
// (M_ARENA_MAX = 1) would instead make every small allocation of every thread wait for one lock.
void keep_large_blocks() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace zt::host
