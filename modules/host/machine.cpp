#include "machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

namespace zt::host {

namespace {

// Returns the value of the first line "key : value" in a file of /proc; empty if there is none.
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// The functions of the CUDA driver that this file calls. They are looked up at run time, so no CUDA header is needed.
struct CudaDriver {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;

  // The library is never closed: the CUDA driver does not support that.
  bool load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    init = reinterpret_cast<decltype(init)>(dlsym(library, "cuInit"));
    version = reinterpret_cast<decltype(version)>(dlsym(library, "cuDriverGetVersion"));
    device_count = reinterpret_cast<decltype(device_count)>(dlsym(library, "cuDeviceGetCount"));
    device_name = reinterpret_cast<decltype(device_name)>(dlsym(library, "cuDeviceGetName"));
    return init && version && device_count && device_name;
  }
};

}  // namespace

Cpu find_cpu() {
  Cpu cpu;
  cpu.model = proc_value("/proc/cpuinfo", "model name");
  std::istringstream flags(proc_value("/proc/cpuinfo", "flags"));
  constexpr std::array kWanted{"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16"};
  for (std::string flag; flags >> flag;) {
    if (std::find(kWanted.begin(), kWanted.end(), flag) != kWanted.end()) cpu.features.push_back(flag);
  }
  cpu.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t allowed;
  cpu.allowed = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : cpu.cores;
  return cpu;
}

Gpus find_gpus() {
  CudaDriver driver;
  if (!driver.load()) return {.problem = "no NVIDIA driver (libcuda.so.1)", .driver = "", .names = {}};
  if (const int status = driver.init(0); status != 0) {
    return {.problem = fmt::format("the NVIDIA driver does not start (error {})", status), .driver = "", .names = {}};
  }
  Gpus gpus;
  int version = 0, count = 0;
  if (driver.version(&version) == 0) gpus.driver = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  if (driver.device_count(&count) != 0 || count == 0) gpus.problem = "the NVIDIA driver shows no device";
  for (int device = 0; device < count; ++device) {
    char name[256] = "";
    if (driver.device_name(name, sizeof(name), device) == 0) gpus.names.emplace_back(name);
  }
  return gpus;
}

std::vector<std::string> find_environment() {
  // Of Open MPI's dozens of variables only the user's settings (OMPI_MCA_*) and the rank's place (OMPI_COMM_WORLD_*) matter.
  constexpr std::array kPrefixes{
      "OMP_", "MKL_", "ZT_", "CUDA_", "NCCL_", "OMPI_COMM_WORLD_", "OMPI_MCA_", "LD_LIBRARY_PATH=", "LUA_"};
  std::vector<std::string> found;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const auto matches = [&](const char* prefix) { return text.starts_with(prefix); };
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(), matches)) found.emplace_back(text);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace zt::host
