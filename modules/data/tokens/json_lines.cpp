#include "json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "zt/base/error.h"

namespace zt::data {

JsonLines::JsonLines(std::string path) : file_(std::move(path)), begins_{0} {
  constexpr int64_t kPartBytes = int64_t{1} << 20;
  std::vector<char> part(static_cast<size_t>(std::min(kPartBytes, file_.size())));
  for (int64_t at = 0; at < file_.size(); at += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min(kPartBytes, file_.size() - at)));
    file_.read(at, std::as_writable_bytes(std::span(part)));
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] == '\n') begins_.push_back(at + static_cast<int64_t>(i) + 1);
    }
  }
  if (begins_.back() != file_.size()) begins_.push_back(file_.size());  // the last line has no line feed
}

Value JsonLines::read(int64_t line) const {
  const int64_t begin = begins_[static_cast<size_t>(line)], end = begins_[static_cast<size_t>(line) + 1];
  std::string text(static_cast<size_t>(end - begin), '\0');
  file_.read(begin, std::as_writable_bytes(std::span(text)));
  try {
    return Value::from_json(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    fault("line {} of '{}' is not JSON: {}. Make the file again with ztoolkit tokenize --chat", line + 1, path(), error.what());
  }
}

}  // namespace zt::data
