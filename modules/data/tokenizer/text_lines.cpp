#include "text_lines.h"

namespace zt {
ZT_DEFINE_OBJECT(data::TextLines, "TextLines")
}  // namespace zt

namespace zt::data {

std::optional<std::string> TextLines::next() {
  if (at_ >= size()) return std::nullopt;
  std::string line;
  for (bool has_ended = false; at_ < size() && !has_ended;) {
    std::string_view part = text_.read(at_, kPartBytes);
    const size_t feed = part.find('\n');
    has_ended = feed != std::string_view::npos;
    if (has_ended) part = part.substr(0, feed + 1);
    hash_.add(part);
    line += part;
    at_ += static_cast<int64_t>(part.size());
  }
  ++number_;
  if (line.ends_with('\n')) line.pop_back();
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace zt::data
