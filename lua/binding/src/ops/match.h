// Which overload a call means: the one that its arguments fit with the least conversion.
#pragma once

#include <optional>
#include <string>

#include "ops/given.h"
#include "ops/signature.h"

namespace zt::lua {

// Where the value of a parameter comes from.
struct Source {
  const Given* given = nullptr;  // nullptr: the default
  size_t loose_sizes = 0;        // > 0: `given` and the ones after it together are the list
};

// How well an overload fits.
struct Match {
  const Overload* overload = nullptr;
  int cost = 0;
  c10::SmallVector<Source, 8> sources;  // one a parameter
};

// Why an overload does not fit: how many of the given arguments did before, and a text for a person.
struct Mismatch {
  size_t fitting = 0;
  std::string reason;
};

// nullopt: does not fit; `mismatch`, unless nullptr, says why.
std::optional<Match> match(const Overload& overload, const Call& call, Mismatch* mismatch);

// The best overload. Misuse lists the candidates and why the nearest does not fit.
Match choose(const Operator& op, const Call& call);

}  // namespace zt::lua
