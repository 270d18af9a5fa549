// Texts that are read in parts, because they may not fit into memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "zt/io/input_file.h"

namespace zt::data {

// Threads: one at a time.
class TextReader {
 public:
  virtual ~TextReader();
  virtual int64_t size() const = 0;  // bytes
  // Returns the bytes [at, at + bytes), or fewer at the end of the text. The result is valid until the next call.
  virtual std::string_view read(int64_t at, int64_t bytes) = 0;
};

// A text in memory. The memory has to outlive the object.
class MemoryText : public TextReader {
 public:
  explicit MemoryText(std::string_view text) : text_(text) {}
  int64_t size() const override { return static_cast<int64_t>(text_.size()); }
  std::string_view read(int64_t at, int64_t bytes) override;

 private:
  std::string_view text_;
};

// A text in a file, with a buffer of at least 1 MiB. Throws: Fault (see InputFile), also if the file is truncated while it is
// read.
class FileText : public TextReader {
 public:
  explicit FileText(std::string path) : file_(std::move(path)) {}
  const std::string& path() const { return file_.path(); }
  int64_t size() const override { return file_.size(); }
  std::string_view read(int64_t at, int64_t bytes) override;

 private:
  io::InputFile file_;
  std::string buffer_;
  int64_t begin_ = 0;  // offset of the buffer in the file
};

}  // namespace zt::data
