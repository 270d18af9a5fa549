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
  SgemmFn* sgemm = nullptr;
  std::string path;
};

// The library, opened at the first call. Fault, saying what to install, if there is none, if it comes from LibTorch after all or
// if it multiplies wrongly; Misuse in a program built with a sanitizer, which cannot keep the two apart. Thread-safe.
const Library& library();

}  // namespace zt::onednn
