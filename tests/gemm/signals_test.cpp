// Signals that interrupt a GEMM: a kernel that keeps something else than the stack in the stack pointer would write the handler's
// frame there. oneDNN's dnnl_sgemm did, up to version 3.11, and corrupted the heap.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <array>
#include <atomic>

#include "providers.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm.h"

namespace zt::test {
namespace {

std::atomic<int> interruptions{0};

void on_alarm(int) {
  std::array<volatile char, 4096> frame;
  for (volatile char& byte : frame) byte = 1;
  ++interruptions;
}

// Interrupts this process every 100 us, on the stack of the interrupted thread, until it is destroyed.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action = {};
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    set_interval(100);
  }
  ~Interruptions() {
    set_interval(0);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  static void set_interval(int microseconds) {
    const itimerval timer{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  }

  struct sigaction before_ = {};
};

// Multiplies whole numbers so small that every order of sums is exact.
void multiply_interrupted(const Gemm& provider, at::ScalarType dtype, int64_t m, int64_t n, int64_t k) {
  const at::Tensor a = at::randint(-3, 4, {m, k}, at::kFloat), b = at::randint(-3, 4, {k, n}, at::kFloat);
  const at::Tensor exact = a.mm(b).to(dtype), left = a.to(dtype), right = b.to(dtype);
  const Interruptions alarm;
  const int begin = interruptions;
  while (interruptions - begin < 100) {
    const at::Tensor c = at::empty({m, n}, dtype);
    provider.run(left, right, c, 0, 1);
    ASSERT_TRUE(c.equal(exact));
  }
}

TEST(GemmSignals, NoProviderLosesDataWhenItIsInterrupted) {
  register_gemm_providers();
  for (const std::string& name : gemm_providers()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      if (!find_gemm(name).takes(at::kCPU, dtype)) continue;
      SCOPED_TRACE(fmt::format("{} {}", name, dtype_name(dtype)));
      for (const int64_t rows : {8, 96, 192}) multiply_interrupted(find_gemm(name), dtype, rows, 288, 96);
    }
  }
}

}  // namespace
}  // namespace zt::test
