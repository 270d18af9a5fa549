// Which provider multiplies which matrices on the CPU, as plain data for the whole process.
//
// A choice decides the order of sums, so promises of equal bits hold for one choice. Change it only where no GEMM runs, before
// the first step.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/gemm/gemm.h"

namespace zt {

// GEMMs that share one provider.
struct GemmGroup {
  at::ScalarType dtype = at::kFloat;  // of a and b: fp32, fp64, bf16 or fp16
  bool widens = false;                // 16-bit matrices are multiplied into an fp32 result, as weight gradients are
  // Few rows and a large matrix: fewer than 64 rows of the batch (m, in a weight gradient k), and a weight of at least about
  // 256 x 1024, which does not fit the second-level cache.
  bool few_rows = false;
  auto operator<=>(const GemmGroup&) const = default;
};
GemmGroup gemm_group(const GemmShape& shape);
// The 12 groups that exist, ascending.
const std::vector<GemmGroup>& all_gemm_groups();
// "float32", "float32_of_few_rows", "bfloat16_to_float32", "bfloat16_to_float32_of_few_rows".
std::string name_of(const GemmGroup& group);

// The name of a provider for each of all_gemm_groups().
using GemmChoice = std::map<GemmGroup, std::string>;
// A table {float32 = "aten", bfloat16_to_float32 = "mkl", ...} for records, checkpoints and other ranks.
Value to_value(const GemmChoice& choice);

// The choice that the name "default" stands for: "aten" everywhere, until the module gemm sets its rule.
GemmChoice default_gemm_choice();
// Sets the default choice and uses it from now on. Throws as use_gemm_choice.
void set_default_gemm_choice(const GemmChoice& choice);
// The named provider for each group whose dtype it takes on the CPU, the default choice for the others. "default" returns the
// default choice. Throws: Misuse for an unknown name, and for a provider that takes nothing on the CPU.
GemmChoice fixed_gemm_choice(const std::string& provider);

// Sets the choice that zt::gemm uses from now on, in the whole process. Throws: Misuse, and nothing changes, if a group is
// missing, a provider is not registered or does not take the dtype.
void use_gemm_choice(const GemmChoice& choice);
// The choice in use. Thread-safe, as are all functions here.
GemmChoice gemm_choice();

// Compares the choices of all ranks, each as `to_value` returns it, in the order of ranks. Throws: Misuse, naming the ranks and
// their providers, if two ranks use different providers for a group.
void check_gemm_choices_alike(const std::vector<Value>& ranks);
// Returns the names of the groups for which `saved`, a choice of another run, names another provider than the choice in use.
// Names that this version does not know are left out.
std::vector<std::string> differing_gemm_groups(const Value& saved);

}  // namespace zt
