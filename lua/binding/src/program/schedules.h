// Learning rate schedules that scripts give: objects of modules, or functions.
#pragma once

#include <memory>
#include <string>

#include "zt/base/value.h"
#include "zt/model/optimizer.h"

namespace zt::lua {

// Returns null for nil. Throws Misuse, with the option's name, unless the value is a Schedule or a function.
std::shared_ptr<Schedule> parse_schedule(const Value& value, const std::string& option);

}  // namespace zt::lua
