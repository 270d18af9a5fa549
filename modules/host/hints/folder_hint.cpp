#include "folder_hint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

namespace zt::host {

namespace {

namespace fs = std::filesystem;

bool has(const fs::path& folder, const char* name) {
  std::error_code unreadable;
  return fs::exists(folder / name, unreadable);
}
bool is_run(const fs::path& folder) {
  return has(folder, "options.json") || has(folder, "metrics.jsonl");
}

// Returns the names in the folder for which `is_wanted` is true, sorted; at most five and the number of the others.
template <class Wanted>
std::string names_in(const std::string& path, const Wanted& is_wanted) {
  constexpr size_t kShown = 5;
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(path, unreadable)) {
    if (is_wanted(entry.path())) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  const size_t hidden = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - hidden);
  return fmt::format("{}{}", fmt::join(names, ", "), hidden > 0 ? fmt::format(" and {} more", hidden) : "");
}

}  // namespace

std::string folder_hint(const std::string& path) {
  if (has(path, "checkpoint.h5")) {
    return fmt::format(
        " with a checkpoint: ztoolkit ckpt show {0} prints what is in it, ztoolkit ckpt export {0} OUTPUT writes it "
        "for Hugging Face",
        path);
  }
  if (is_run(path)) {
    return fmt::format(
        " with a run: ztoolkit report {0} makes a page of it, ztoolkit ckpt ls {0} lists its checkpoints, ztoolkit trace {0} "
        "draws a step. To continue the run, start its script again with the same options (they are in {0}/options.json)",
        path);
  }
  if (has(path, "config.json") &&
      !names_in(path, [](const fs::path& file) { return file.extension() == ".safetensors"; }).empty()) {
    return fmt::format(" with a model of Hugging Face: ztoolkit ckpt import {0} RUN makes a checkpoint of it", path);
  }
  const std::string runs = names_in(path, is_run);
  if (!runs.empty()) return fmt::format(" with the runs {}: ztoolkit ckpt ls {} lists their checkpoints", runs, path);
  const std::string scripts = names_in(path, [](const fs::path& file) { return file.extension() == ".lua"; });
  if (!scripts.empty()) return fmt::format(" with the scripts {}: to run one, write: ztoolkit run {}/SCRIPT", scripts, path);
  const std::string others = names_in(path, [](const fs::path&) { return true; });
  return fmt::format(" {}: give a script, as in ztoolkit run SCRIPT.lua",
                     others.empty() ? std::string("without files that can be read") : "with " + others);
}

}  // namespace zt::host
