// Products of every form by one provider, compared with fp64.
#pragma once

#include <string>

namespace zt::test {

// Fixes the provider and checks zt::gemm for every dtype that it takes on the CPU: all transposes, alpha, beta, odd sizes and
// zero, operands and results that are parts of larger matrices, transposed, broadcast or strided. Puts the default back.
void check_products(const std::string& provider);

}  // namespace zt::test
