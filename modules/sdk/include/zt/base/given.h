// The options from which a script has made an object, as text, so that the ranks can compare theirs.
#pragma once

#include <map>
#include <string>

#include "zt/base/value.h"

namespace zt {

// By name; that of an option in a table within the table is "router.top_k". A tensor is given by its shape and dtype, an object
// or a function by its type.
using GivenOptions = std::map<std::string, std::string>;

// `options`: a table, a list, or nil for none.
GivenOptions given_options(const Value& options);

// A base of what scripts make from a table of options and ranks must make alike.
struct MadeFromOptions {
  GivenOptions given = {};
};

}  // namespace zt
