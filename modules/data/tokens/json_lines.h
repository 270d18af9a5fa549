// A file with one JSON value per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/io/input_file.h"

namespace zt::data {

// Knows where the lines begin, and reads a line when it is needed. Memory: 8 bytes per line. Threads: const after construction.
// Throws: Fault (see InputFile).
class JsonLines {
 public:
  explicit JsonLines(std::string path);

  const std::string& path() const { return file_.path(); }
  int64_t count() const { return static_cast<int64_t>(begins_.size()) - 1; }
  // Returns the value of a line, from 0. Throws Fault, with the line, if it is not JSON.
  Value read(int64_t line) const;

 private:
  io::InputFile file_;
  std::vector<int64_t> begins_;  // byte offsets of the lines, and the end of the last one
};

}  // namespace zt::data
