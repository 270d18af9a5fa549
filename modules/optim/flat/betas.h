// The option `betas` of several optimizers: the decay rates of moving averages.
#pragma once

#include <string>
#include <vector>

namespace zt::optim {

using Betas = std::vector<double>;

// Returns an error message, or an empty text if `betas` is valid.
inline std::string check_betas(const Betas& betas) {
  const auto ok = [](double beta) { return beta >= 0 && beta < 1; };
  return betas.size() == 2 && ok(betas[0]) && ok(betas[1]) ? "" : "must be two numbers from 0 up to but not including 1";
}

}  // namespace zt::optim
