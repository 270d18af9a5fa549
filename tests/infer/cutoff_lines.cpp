// Prints for each line of the standard input, a case of tests/oracle/make_cutoffs.py, the tokens that remain.
#include <iostream>
#include <string>

#include "cutoff_case.h"

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << nlohmann::json(zt::infer::CutoffCase(nlohmann::json::parse(line)).kept()).dump() << '\n';
}
