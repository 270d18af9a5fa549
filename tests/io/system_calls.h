// Processes in which some system calls fail.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <exception>

namespace zt::io {

// Runs `work` in a forked process, then ends that process: with 0 if no expectation failed, else with 1.
template <class Work>
[[noreturn]] void in_child(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

// Makes the system call `call` fail with `error` from now on: always if `mask` is 0, else if argument number `argument` has a bit
// of `mask` set.
inline void refuse(long call, int error, int argument = 0, uint32_t mask = 0) {
  const auto number = static_cast<uint32_t>(call);
  const auto offset = static_cast<uint32_t>(offsetof(seccomp_data, args) + sizeof(uint64_t) * static_cast<size_t>(argument));
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset),
      BPF_JUMP(BPF_JMP | (mask != 0 ? BPF_JSET : BPF_JGE) | BPF_K, mask, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    ADD_FAILURE() << "cannot filter system calls";
  }
}

}  // namespace zt::io
