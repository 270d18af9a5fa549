// Chooses the overload for a call: the one whose parameters need the least conversion of the arguments.
#pragma once

#include <optional>
#include <string>

#include "ops/given.h"
#include "ops/signature.h"

namespace zt::lua {

// The origin of a parameter's value.
struct ArgumentSource {
  const GivenArgument* given = nullptr;  // null means the parameter's default
  size_t loose_sizes = 0;                // > 0: the list consists of this many arguments from `given` on, written without braces
};

// An overload that fits a call.
struct Match {
  const Overload* overload = nullptr;
  int cost = 0;                                 // of the conversions; 0: all arguments match exactly
  c10::SmallVector<ArgumentSource, 8> sources;  // one per parameter
};

// Why an overload does not fit a call.
struct Mismatch {
  size_t fitting = 0;  // number of arguments that fitted before the first mismatch
  std::string reason;
};

// Returns nullopt if the overload does not fit; then sets `*mismatch` unless `mismatch` is null.
std::optional<Match> match(const Overload& overload, const OperatorCall& call, Mismatch* mismatch);

// Returns the match with the least cost. Throws Misuse if no overload fits; the message lists the overloads and says why the
// nearest does not fit.
Match choose(const Operator& op, const OperatorCall& call);

}  // namespace zt::lua
