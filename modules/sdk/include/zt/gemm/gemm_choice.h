// The choice of the provider for each group of GEMMs on the CPU. It is plain data, and holds for the whole process; GemmScope
// chooses for a while.
//
// A choice decides the order of sums, so equal bits are promised only for equal choices. Change the choice only while no GEMM
// runs, before the first step.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/gemm/gemm.h"

namespace zt {

// GEMMs that share one provider.
struct GemmGroup {
  at::ScalarType dtype = at::kFloat;  // of a and b: fp32, fp64, bf16 or fp16
  bool widens = false;                // a and b have 16 bits and the result is fp32, as for weight gradients
  // Few rows and a large weight: fewer than 64 rows of the batch (m; k in a weight gradient), and a weight of at least about
  // 256 x 1024, which does not fit into the second-level cache.
  bool few_rows = false;
  auto operator<=>(const GemmGroup&) const = default;
};
GemmGroup gemm_group(const GemmShape& shape);
// Returns the 12 groups that exist, ascending.
const std::vector<GemmGroup>& all_gemm_groups();
// Returns names such as "float32", "float32_of_few_rows", "bfloat16_to_float32" and "bfloat16_to_float32_of_few_rows".
std::string name_of(const GemmGroup& group);

// The name of the provider for each group in all_gemm_groups().
using GemmChoice = std::map<GemmGroup, std::string>;
// Returns a table {float32 = "aten", bfloat16_to_float32 = "mkl", ...}, for records, checkpoints and other ranks.
Value to_value(const GemmChoice& choice);

// Returns the choice that the name "default" stands for: "aten" for all groups, until the module gemm sets its own.
GemmChoice default_gemm_choice();
// Sets the default choice and uses it from now on. Throws what use_gemm_choice throws; then nothing changes.
void set_default_gemm_choice(const GemmChoice& choice);
// Returns a choice with the named provider for each group whose dtype it takes on the CPU, and the default for the other groups.
// For "default" returns the default choice. Throws Misuse if the name is unknown or if the provider takes no dtype on the CPU.
GemmChoice fixed_gemm_choice(const std::string& provider);

// Sets the choice that zt::gemm uses from now on, in the whole process. Throws Misuse, and changes nothing, if a group is missing
// or if a provider is not registered or does not take the group's dtype.
void use_gemm_choice(const GemmChoice& choice);
// Returns the choice in use. Thread-safe, as are all functions here.
GemmChoice gemm_choice();

// While it lives, GEMMs on the CPU that the calling thread starts are run by one provider, if it takes their dtype; others as
// chosen for the process. Scopes may be nested.
class GemmScope {
 public:
  // Throws Misuse if there is no such provider.
  explicit GemmScope(const std::string& provider);
  ~GemmScope();
  GemmScope(const GemmScope&) = delete;
  GemmScope& operator=(const GemmScope&) = delete;
  // Returns the provider of the scope that the thread is in; null if none.
  static const Gemm* current();

 private:
  const Gemm* before_;
};

// Returns x w^T [..., n], plus `bias` [n] if it is given, of x [..., k] and w [n, k]. Within a GemmScope, without autograd, its
// provider multiplies; else it is at::linear.
at::Tensor linear_by_scope(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias = {});

// Compares the choices of all ranks, in the order of ranks, each as `to_value` returns it. Throws Misuse, with the ranks and
// their providers, if two ranks use different providers for a group.
void check_gemm_choices_alike(const std::vector<Value>& ranks);
// Returns the names of the groups for which `saved`, the choice of another run, has another provider than the choice in use.
// Ignores groups that this version does not know.
std::vector<std::string> differing_gemm_groups(const Value& saved);

}  // namespace zt
