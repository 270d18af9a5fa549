// Tests the GEMMs of a provider against fp64.
#pragma once

#include <string>

namespace zt::test {

// Makes zt::gemm use the provider, and checks its results for every dtype that it takes on the CPU: alpha, beta, odd sizes, size
// zero, and matrices that are transposed, broadcast, strided or parts of larger ones. Then restores the default choice.
void check_products(const std::string& provider);

}  // namespace zt::test
