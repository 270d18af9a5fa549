// Facts about this machine, read from the system. A field is empty or 0 if the system does not provide the fact.
#pragma once

#include <string>
#include <vector>

namespace zt::host {

struct Cpu {
  std::string model;
  std::vector<std::string> features;  // only features that kernels are chosen by: "avx2", "avx512f", "avx512_bf16", "amx_bf16"
  int cores = 0;                      // number of cores that are online
  int allowed = 0;                    // number of cores that this process may use
};
Cpu find_cpu();

struct Gpus {
  std::string problem;  // why no GPU was found: "no NVIDIA driver (libcuda.so.1)"; empty if one was found
  std::string driver;   // the CUDA version the driver supports: "13.0"
  std::vector<std::string> names;
};
Gpus find_gpus();

// Returns the environment variables that change what a run does (such as OMP_*, ZT_*, CUDA_*, NCCL_*), as "NAME=value", sorted.
std::vector<std::string> find_environment();

}  // namespace zt::host
