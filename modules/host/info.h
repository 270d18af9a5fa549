// `ztoolkit info`: facts for a bug report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "loading/paths.h"

namespace zt::host {

nlohmann::ordered_json collect_info(const Paths& paths);

// Returns `info` as aligned text: one heading per section, one line per fact.
std::string info_text(const nlohmann::ordered_json& info);

}  // namespace zt::host
