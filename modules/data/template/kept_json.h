// JSON as it was written: the order of names, null, empty lists and the difference of 2 and 2.0, which tables of Lua do not have.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "zt/base/object.h"
#include "zt/base/value.h"

namespace zt::data {

struct KeptJson {
  nlohmann::ordered_json content;
};

// Throws Fault, with `name`, for a text that is not JSON.
std::shared_ptr<KeptJson> parse_kept_json(const std::string& text, const std::string& name);
// Returns each field of an object, as a KeptJson. Throws Misuse for another value.
Value::Table fields_of(const KeptJson& json);

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::KeptJson)
}
