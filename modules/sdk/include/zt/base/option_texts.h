// The options from which an object was made, as text, so that the ranks can compare theirs.
#pragma once

#include <map>
#include <string>

#include "zt/base/value.h"

namespace zt {

// By name. An option without a value has no entry.
using OptionTexts = std::map<std::string, std::string>;

// Returns the name of an option in a table: "capacity.train", or `names["a.b"]` for a key that no name in Lua can be.
std::string member_name(const std::string& table, const std::string& key);

// A base of what scripts make from a table of options and ranks must make alike.
struct MadeFromOptions {
  OptionTexts option_texts = {};  // of all options, defaults included; Schema::make sets them
};

// Adds the text of a value. A tensor is given by its shape and dtype, an object by its type.
void add_text(const std::string& name, const Value& value, OptionTexts& texts);

}  // namespace zt
