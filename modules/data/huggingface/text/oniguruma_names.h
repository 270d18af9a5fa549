// The names of character properties and classes in Oniguruma.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zt::data::huggingface {

// Returns the property of PCRE2, such as "\\p{Lu}", for the name within \p{...}. A name that is not known is taken for a script.
std::string oniguruma_property(std::string_view name, bool is_negated);

// Returns the content of a set of PCRE2 for the name within [:...:], or nullopt if it is not supported.
std::optional<std::string> posix_class(std::string_view name);

}  // namespace zt::data::huggingface
