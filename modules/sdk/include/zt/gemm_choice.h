// Which provider multiplies which matrices, as plain data; how a trial finds it; how all ranks agree on it.
//
// A choice decides the order of sums, so promises of equal bits hold at a fixed choice. It belongs to the process: change it
// where no product runs, before the first step.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "zt/comm.h"
#include "zt/gemm.h"
#include "zt/value.h"
#include "zt/world.h"

namespace zt {

// Products that one provider is chosen for: those of a kind and of types whose m, n, k are alike within a factor of 4.
struct GemmClass {
  GemmKind kind = GemmKind::forward;
  at::ScalarType dtype = at::kFloat;
  uint8_t m = 0, n = 0, k = 0;  // 0: below 64, 1: from 64, 2: from 256 and so on to 6: from 65536
  bool widens = false;
  auto operator<=>(const GemmClass&) const = default;
};
GemmClass gemm_class(const GemmShape& shape);
// "forward/float32/1024x256x64", "weight_gradient/bfloat16_to_float32/...": the least m, n, k of the class.
std::string name_of(const GemmClass& gemm_class);

// Complete: a class that is not listed has the provider of its types.
struct GemmChoice {
  std::map<at::ScalarType, std::string> by_dtype;  // fp32, fp64, bf16, fp16
  std::map<at::ScalarType, std::string> widening;  // bf16, fp16: of their products into fp32
  // Of dtypes that have one for few rows (m, in a weight gradient k, below 64) and a matrix too large for the second-level cache.
  std::map<at::ScalarType, std::string> few_rows;
  std::map<GemmClass, std::string> by_class;
  bool operator==(const GemmChoice&) const = default;

  const std::string& provider(const GemmClass& gemm_class) const;
  // A flat table {float32 = "aten", bfloat16_to_float32 = "mkl", float32_of_few_rows = "skinny",
  // ["forward/float32/1024x256x64"] = "onednn", ...}, for records, checkpoints and other ranks.
  Value to_value() const;
  static GemmChoice from_value(const Value& value);  // Misuse, naming the key, for anything else
};

// The rule without a trial: "aten", but "mkl" for fp16 and, on a processor without bf16 instructions, for bf16: there LibTorch's
// oneDNN emulates them, at a fraction of the speed of fp32. Into fp32 "mkl" on every processor, since it uses what instructions
// there are, where "aten" multiplies widened matrices. On a processor with AVX-512, "skinny" for few rows of fp32 and of what is
// emulated. Depends on the processor only.
GemmChoice default_gemm_choice();
// The provider of that name for all types that it takes on the CPU, the rule for others. Misuse if it takes none.
GemmChoice fixed_gemm_choice(const std::string& provider);

// What zt::gemm uses on the CPU from now on, in the whole process. Misuse, and nothing changes, for a provider that is not
// registered or does not take the dtype. At first the default is in use.
void use_gemm_choice(const GemmChoice& choice);
GemmChoice gemm_choice();

// How a trial is made. Replaced in tests.
struct GemmTrial {
  std::vector<std::string> providers = gemm_providers();
  // Runs the product and returns the seconds that it took.
  std::function<double(const std::function<void()>& product)> seconds;
  std::function<void(const std::string& line)> report;
};
// A trial with the steady clock.
GemmTrial timed_gemm_trial(std::function<void(const std::string& line)> report);

// `known`, and a provider for every class of `shapes` that it does not list, found by trying every provider on the largest shape
// of the class, in turns, on operands that lie as in a layer. A provider whose result differs from the fp64 product by more than
// rounding explains, which throws, or which is 5 times as slow as another on a small product, is reported and not chosen. The
// fastest by the medians is chosen where it gains at least 3 % over the one that `known` has for these types, which else stays.
// On a machine that does other work the times, and so the choice, are noise. Fault if no result is right.
GemmChoice choose_gemm(const std::vector<GemmShape>& shapes, const GemmTrial& trial, GemmChoice known = default_gemm_choice());

// What the script asked for: "default", "auto" (trials, made by settle_products) or a provider's name; anything else is a Misuse.
// It is in use at once: for "auto" the rule, to which trials then add; "auto" once more keeps what they chose.
void request_gemm(const std::string& provider);
std::string gemm_request();

// What a rank brings to settle_products.
struct GemmPart {
  std::string request;
  GemmChoice choice;
  std::vector<GemmShape> shapes;
};
// The ranks' parts as one: all shapes, and the choice of the lowest rank that has one for a class. Misuse if they request
// different things.
GemmPart join(const std::vector<GemmPart>& ranks);

// Before products of `planned` shapes run: where the script asked for "auto", a trial of the classes that no earlier trial of
// this process chose for; others need no shapes, so plan none for them. What was chosen stays, so who multiplied before gets the
// same bits. `ranks`, nullptr for a rank alone: all get one choice, for which rank 0 tries the shapes of all (`join`). Returns
// what is in use. Collective. Where it throws, every rank uses what it used before: Misuse, on all ranks, as `join`; Fault, on
// all ranks, if the trial fails.
GemmChoice settle_products(const std::vector<GemmShape>& planned, Communicator* ranks, const GemmTrial& trial);
// With the steady clock; trials are reported to the log.
GemmChoice settle_products(const std::vector<GemmShape>& planned, Communicator* ranks, const World& world);

// Uses what another run chose, of a checkpoint. Where trials of this process have chosen already, what they chose stays, and the
// names of what was saved otherwise are returned. Misuse, and nothing changes, as use_gemm_choice.
std::vector<std::string> adopt_gemm_choice(const GemmChoice& saved);

}  // namespace zt
