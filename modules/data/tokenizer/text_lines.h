// Iterates over the lines of a text file, and hashes what it has read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text_reader.h"
#include "tokens/companion.h"
#include "zt/base/object.h"

namespace zt::data {

// Memory is that of the longest line. Throws: Fault (see FileText). Threads: one at a time.
class TextLines {
 public:
  explicit TextLines(std::string path) : text_(std::move(path)) {}

  // Returns the next line without its line feed, and without a carriage return before it; nullopt at the end.
  std::optional<std::string> next();
  const std::string& path() const { return text_.path(); }
  int64_t size() const { return text_.size(); }  // bytes of the file
  int64_t done() const { return at_; }           // bytes of the lines so far
  int64_t number() const { return number_; }     // of the line that `next` returned last, from 1
  // Returns the content_hash of the lines so far. At the end it is that of the file.
  std::string hash() const { return hash_.text(); }

 private:
  static constexpr int64_t kPartBytes = int64_t{1} << 16;

  FileText text_;
  ContentHash hash_;
  int64_t at_ = 0, number_ = 0;
};

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::TextLines)
}
