#include "memory.h"

#include <malloc.h>

namespace zt::host {

// By default malloc maps each large temporary from the kernel and unmaps it at once. A 64 MiB addition then spends
// six sevenths of its time in page faults (37 ms against 6 ms).
//
// The settings only affect malloc's arena of the main thread. Other threads have arenas of 64 MiB heaps, and a larger block still
// comes from the kernel. Ranks that are threads (--threads) pay for this, but they are for tests and debugging. One arena for all
// threads (M_ARENA_MAX = 1) would make every small allocation wait for one lock.
void keep_large_blocks() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace zt::host
