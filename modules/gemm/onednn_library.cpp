#include "onednn_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace zt::onednn {

namespace {

// Opens the newest oneDNN that is installed. Returns null and sets `problem` if there is none.
void* open_any(std::string& problem) {
  std::string said;
  for (const char* name : {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"}) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) return handle;
    if (said.empty()) said = dlerror();
  }
  problem = "oneDNN cannot be loaded (libdnnl-dev installs it): " + said;
  return nullptr;
}

Library open_library() {
  Library library;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  library.problem = "sanitizers refuse RTLD_DEEPBIND";
  return library;
#endif
  void* handle = open_any(library.problem);  // never closed, because the library has threads and code caches
  if (!handle) return library;
  auto* sgemm = reinterpret_cast<SgemmFn*>(dlsym(handle, "dnnl_sgemm"));
  Dl_info where{};
  if (!sgemm || dladdr(reinterpret_cast<void*>(sgemm), &where) == 0) {
    library.problem = "the library has no dnnl_sgemm: versions 1 to 3 have it";
    return library;
  }
  library.path = where.dli_fname;
  if (library.path.find("libdnnl") == std::string::npos) {
    library.problem = fmt::format("dnnl_sgemm comes from {}, not from libdnnl", library.path);
  } else {
    library.sgemm = sgemm;
  }
  return library;
}

}  // namespace

const Library& library() {
  static const Library library = open_library();
  return library;
}

// The numbers are small integers, so the result is exact.
bool multiplies(SgemmFn& sgemm) {
  constexpr int kM = 5, kN = 7, kK = 9;
  for (const bool is_transposed : {false, true}) {
    std::array<float, kM * kK> a{};
    std::array<float, kK * kN> b{};
    std::array<float, kM * kN> c{};
    const auto at_a = [&](int i, int l) -> float& { return a[is_transposed ? l * kM + i : i * kK + l]; };
    const auto at_b = [&](int l, int j) -> float& { return b[is_transposed ? j * kK + l : l * kN + j]; };
    for (int i = 0; i < kM; ++i) {
      for (int l = 0; l < kK; ++l) at_a(i, l) = static_cast<float>(i - 2 * l);
    }
    for (int l = 0; l < kK; ++l) {
      for (int j = 0; j < kN; ++j) at_b(l, j) = static_cast<float>(3 * j + l);
    }
    c.fill(4);
    const char transpose = is_transposed ? 'T' : 'N';
    if (sgemm(transpose, transpose, kM, kN, kK, 1, a.data(), is_transposed ? kM : kK, b.data(), is_transposed ? kK : kN, 0.5F,
              c.data(), kN) != 0) {
      return false;
    }
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < kN; ++j) {
        float sum = 2;
        for (int l = 0; l < kK; ++l) sum += at_a(i, l) * at_b(l, j);
        if (c[i * kN + j] != sum) return false;
      }
    }
  }
  return true;
}

}  // namespace zt::onednn
