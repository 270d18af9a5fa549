// oneDNN, opened so that its symbols and those of the oneDNN inside LibTorch do not meet.
//
// Linked, or opened like any library, it would take parts of LibTorch's older or newer oneDNN for its own - both export instances
// of C++ templates - and return errors. So it is opened local and with RTLD_DEEPBIND: its own symbols come first.
#pragma once

#include <cstdint>
#include <string>

namespace zt::onednn {

// dnnl_sgemm of oneDNN's C API (versions 1 to 3), on row-major matrices; 0 is success.
using SgemmFn = int(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                    const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

struct Library {
  SgemmFn* sgemm = nullptr;  // null: the library cannot be used
  std::string path;          // of the library that was opened
  std::string problem;       // why it cannot be used
};

// Opens the library at the first call and returns it. It cannot be used if it is not installed, if the function found belongs to
// LibTorch after all, and in a program built with a sanitizer, which refuses RTLD_DEEPBIND. Thread-safe.
const Library& library();

// Multiplies two small matrices, both ways of lying in memory. Returns whether `sgemm` reports no error and the results are
// exact. The first call of a library takes some 30 ms: it generates code.
bool multiplies(SgemmFn& sgemm);

}  // namespace zt::onednn
