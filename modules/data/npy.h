// One-dimensional arrays of integers as NumPy's .npy files (format: numpy.lib.format), read by mapping.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "atomic_file.h"
#include "mapped_file.h"

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

// `file` holds the whole file; `path` is for messages. Fault for a defect, saying which: not .npy, another version, a header
// that does not parse, another dtype, Fortran order, not one-dimensional, misaligned data, fewer or more bytes than promised.
NpyHeader parse_npy_header(std::string_view file, const std::string& path);
// The header of a version 1.0 file, kNpyHeaderBytes long.
std::string make_npy_header(NpyType type, int64_t count);

// An array of a file on disk, without a copy. Threads: const after construction. Errors: Fault (MappedFile, parse_npy_header).
class NpyFile {
 public:
  explicit NpyFile(std::string path);

  const std::string& path() const { return file_.path(); }
  NpyType type() const { return header_.type; }
  int64_t count() const { return header_.count; }

  // Calls visit(span<const T>) with the elements; T is uint16_t, uint32_t, uint64_t or int64_t.
  template <class Visit>
  decltype(auto) visit(Visit&& visit) const {
    switch (header_.type) {
      case NpyType::u16:
        return visit(values<uint16_t>());
      case NpyType::u32:
        return visit(values<uint32_t>());
      case NpyType::u64:
        return visit(values<uint64_t>());
      case NpyType::i64:
        break;
    }
    return visit(values<int64_t>());
  }

 private:
  template <class T>
  std::span<const T> values() const {
    const char* first = file_.bytes().data() + header_.data_offset;
    return {reinterpret_cast<const T*>(first), static_cast<size_t>(header_.count)};
  }

  MappedFile file_;
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
  AtomicFile file_;
  NpyType type_;
  int64_t count_ = 0;
  std::string buffer_;
};

}  // namespace zt::data
