// Opens oneDNN so that its symbols and those of the oneDNN inside LibTorch are not mixed up.
//
// Both libraries export instances of the same C++ templates. If oneDNN were linked, or opened without special flags, it would
// call parts of LibTorch's older or newer version and return errors. So it is opened with RTLD_LOCAL and RTLD_DEEPBIND: it finds
// its own symbols first.
#pragma once

#include <cstdint>
#include <string>

namespace zt::onednn {

// dnnl_sgemm of oneDNN's C API (versions 1 to 3), for row-major matrices. Returns 0 for success.
using SgemmFn = int(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                    const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

struct Library {
  SgemmFn* sgemm = nullptr;  // null means that the library cannot be used
  std::string path;          // path of the library that was opened
  std::string problem;       // why the library cannot be used
};

// Opens the library at the first call. Returns the same object at each call. The library cannot be used if it is not installed,
// if the function found belongs to LibTorch after all, or if the program was built with a sanitizer, which does not support
// RTLD_DEEPBIND. Thread-safe.
const Library& library();

// Multiplies two small matrices, both plain and transposed. Returns whether `sgemm` reports no error and the results are exact.
// The first call takes about 30 ms, because the library generates code.
bool multiplies(SgemmFn& sgemm);

}  // namespace zt::onednn
