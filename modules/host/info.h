// `ztoolkit info`: what a bug report needs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "paths.h"

namespace zt::host {

nlohmann::ordered_json collect_info(const Paths& paths);

// As aligned text: a heading a section, a line a fact.
std::string info_text(const nlohmann::ordered_json& info);

}  // namespace zt::host
