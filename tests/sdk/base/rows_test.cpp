// Loops over rows.
#include "zt/base/rows.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

namespace zt {
namespace {

// at::parallel_for is a loop on one thread in code that is compiled without OpenMP.
TEST(Rows, AreDividedAmongThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not know OpenMP's barriers, so our code is compiled without OpenMP for it";
#endif
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  int64_t rows = 0;
  for_rows(1000, 32768, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    rows += end - begin;
  });
  at::set_num_threads(before);
  EXPECT_EQ(threads.size(), 2);
  EXPECT_EQ(rows, 1000);
}

}  // namespace
}  // namespace zt
