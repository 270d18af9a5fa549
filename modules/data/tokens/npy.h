// One-dimensional arrays of integers as NumPy's .npy files (format: numpy.lib.format).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "zt/io/atomic_file.h"
#include "zt/io/input_file.h"

namespace zt::data {

// The element types that can be read. Tokens are u16 or u32, masks are u8; offsets may have any of these types.
enum class NpyType : uint8_t { u8, u16, u32, u64, i64 };
int64_t item_size(NpyType type);  // bytes
const char* descr(NpyType type);  // the type's name in the header, for example "<u2"

struct NpyHeader {
  NpyType type = NpyType::u16;
  int64_t count = 0;        // elements
  int64_t data_offset = 0;  // bytes before the first element
};

constexpr int64_t kNpyHeaderBytes = 128;                   // header size of written files; enough for any count
constexpr int64_t kMostNpyHeaderBytes = int64_t{1} << 17;  // largest header that is read; more than version 1.0 can have

// Parses the header of a file. `head` holds the first kMostNpyHeaderBytes of the file, or the whole file if it is shorter.
// `file_bytes` is the file's size. `path` is for messages. Throws Fault with the defect: not .npy, another version, a header that
// is too long or does not parse, another dtype, Fortran order, not one-dimensional, misaligned data, or fewer or more bytes than
// the header says.
NpyHeader parse_npy_header(std::string_view head, int64_t file_bytes, const std::string& path);
// Returns the header of a version 1.0 file, kNpyHeaderBytes long.
std::string make_npy_header(NpyType type, int64_t count);

// An array in a file, which is read in parts. If the file is truncated while it is open, `visit` throws. (The file is not mapped:
// a truncated mapped file would kill the process, or read as zeros in its last page.) Threads: const after construction. Throws:
// Fault (see InputFile and parse_npy_header).
class NpyFile {
 public:
  explicit NpyFile(std::string path);

  const std::string& path() const { return file_.path(); }
  NpyType type() const { return header_.type; }
  int64_t count() const { return header_.count; }

  // Returns a text that tells arrays apart: the number of elements and a hash of them. Of more than kDigestParts *
  // kDigestPartItems elements, the hash takes that many, in parts that are spread evenly from the first to the last element. The
  // same elements have the same digest in every type.
  std::string digest() const;

  // Calls visit(span<const T>, index of its first element) for each part of the elements [first, first + count), in ascending
  // order. T is uint8_t, uint16_t, uint32_t, uint64_t or int64_t. Requires that the elements exist.
  template <class Visit>
  void visit(int64_t first, int64_t count, const Visit& visit) const {
    switch (header_.type) {
      case NpyType::u8:
        return visit_as<uint8_t>(first, count, visit);
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
  static constexpr int64_t kDigestParts = 64, kDigestPartItems = 4096;

  template <class T, class Visit>
  void visit_as(int64_t first, int64_t count, const Visit& visit) const {
    constexpr int64_t kPart = kPartBytes / static_cast<int64_t>(sizeof(T));
    std::array<T, kPart> memory;  // not initialised: read() fills the used part
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

// Writes an array whose length is not known beforehand. The file appears under its name in `commit` (see AtomicFile).
class NpyWriter {
 public:
  NpyWriter(std::string path, NpyType type, io::FileSystem& files = io::posix_files());

  // Throws Misuse if the type cannot hold a value.
  void append(std::span<const int32_t> values) { append_values(values); }
  void append(std::span<const int64_t> values) { append_values(values); }
  void append(std::span<const uint8_t> values) { append_values(values); }
  int64_t count() const { return count_; }
  void commit();

 private:
  template <class From>
  void append_values(std::span<const From> values);

  io::AtomicFile file_;
  NpyType type_;
  int64_t count_ = 0;
  std::string buffer_;
};

}  // namespace zt::data
