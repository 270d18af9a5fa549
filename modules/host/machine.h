// What machine this is: read from the system, each part empty or 0 where the system does not tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zt::host {

struct Cpu {
  std::string model;
  std::vector<std::string> features;  // of those our code chooses by: "avx2", "avx512f", "avx512_bf16", "amx_bf16"
  int cores = 0;                      // that are on
  int allowed = 0;                    // that this process may use
};
Cpu find_cpu();

struct Memory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
};
Memory find_memory();

struct Gpus {
  std::string problem;  // why there are none: "no NVIDIA driver (libcuda.so.1)"
  std::string driver;   // the CUDA version the driver supports: "13.0"
  std::vector<std::string> names;
};
Gpus find_gpus();

// Variables that change what a run does (OMP_*, ZT_*, CUDA_*, NCCL_*, OMPI_*), as "NAME=value", by name.
std::vector<std::string> find_environment();

}  // namespace zt::host
