// One-dimensional arrays of integers as NumPy's .npy files (format: numpy.lib.format).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "zt/io/atomic_file.h"
#include "zt/io/input_file.h"

namespace zt::data {

// What we read: tokens are unsigned of 16 or 32 bits, offsets may be any of these.
enum class NpyType : uint8_t { u16, u32, u64, i64 };
int64_t item_size(NpyType type);
const char* descr(NpyType type);  // "<u2": as the header spells it

struct NpyHeader {
  NpyType type = NpyType::u16;
  int64_t count = 0;        // elements
  int64_t data_offset = 0;  // bytes before the first element
};

constexpr int64_t kNpyHeaderBytes = 128;  // of the files we write: large enough for any count

constexpr int64_t kMostNpyHeaderBytes = int64_t{1} << 17;  // of the files we read: more than version 1.0 can have

// `head` holds the first kMostNpyHeaderBytes of the file, or all of it if it is shorter; `file_bytes` is the file's size; `path`
// is for messages. Fault for a defect, saying which: not .npy, another version, a header that is too long or does not parse,
// another dtype, Fortran order, not one-dimensional, misaligned data, fewer or more bytes than promised.
NpyHeader parse_npy_header(std::string_view head, int64_t file_bytes, const std::string& path);
// The header of a version 1.0 file, kNpyHeaderBytes long.
std::string make_npy_header(NpyType type, int64_t count);

// An array of a file on disk, read part by part. It is not mapped: a mapped file that is cut ends the process, and reads as
// zeros within its last page, where `visit` throws.
// Threads: const after construction. Errors: Fault (InputFile, parse_npy_header).
class NpyFile {
 public:
  explicit NpyFile(std::string path);

  const std::string& path() const { return file_.path(); }
  NpyType type() const { return header_.type; }
  int64_t count() const { return header_.count; }

  // Calls visit(span<const T>, index of its first element) for elements [first, first + count), which must exist, part by part
  // in ascending order; T is uint16_t, uint32_t, uint64_t or int64_t.
  template <class Visit>
  void visit(int64_t first, int64_t count, const Visit& visit) const {
    switch (header_.type) {
      case NpyType::u16:
        return visit_as<uint16_t>(first, count, visit);
      case NpyType::u32:
        return visit_as<uint32_t>(first, count, visit);
      case NpyType::u64:
        return visit_as<uint64_t>(first, count, visit);
      case NpyType::i64:
        break;
    }
    return visit_as<int64_t>(first, count, visit);
  }

 private:
  static constexpr int64_t kPartBytes = int64_t{32} << 10;

  template <class T, class Visit>
  void visit_as(int64_t first, int64_t count, const Visit& visit) const {
    constexpr int64_t kPart = kPartBytes / static_cast<int64_t>(sizeof(T));
    std::array<T, kPart> memory;  // not initialised: read() fills what is used
    for (const int64_t end = first + count; first < end;) {
      const std::span<T> part(memory.data(), static_cast<size_t>(std::min(kPart, end - first)));
      file_.read(header_.data_offset + first * static_cast<int64_t>(sizeof(T)), std::as_writable_bytes(part));
      visit(std::span<const T>(part), first);
      first += static_cast<int64_t>(part.size());
    }
  }

  io::InputFile file_;
  NpyHeader header_;
};

// Writes an array whose length is not known beforehand. The file gets its name in `commit` (AtomicFile).
class NpyWriter {
 public:
  NpyWriter(std::string path, NpyType type);

  // Misuse for a value that the type cannot hold.
  void append(std::span<const int32_t> values);
  int64_t count() const { return count_; }
  void commit();

 private:
  io::AtomicFile file_;
  NpyType type_;
  int64_t count_ = 0;
  std::string buffer_;
};

}  // namespace zt::data
