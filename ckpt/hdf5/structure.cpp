#include "structure.h"

#include <bit>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "tree.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

using ByteSpan = std::span<const std::byte>;

constexpr uint64_t kNowhere = UINT64_MAX;  // an address that is not set
constexpr size_t kChecksumBytes = 4;

// The types of messages in object headers that the walk follows.
enum MessageType : uint8_t { kLinkInfo = 0x02, kLink = 0x06, kContinuation = 0x10, kAttributeInfo = 0x15 };

uint32_t word(ByteSpan bytes, size_t place) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4 && place + i < bytes.size(); ++i) value |= std::to_integer<uint32_t>(bytes[place + i]) << (8 * i);
  return value;
}

// Returns the checksum of HDF5's metadata: lookup3, by Bob Jenkins (2006), of public domain.
uint32_t metadata_checksum(ByteSpan bytes) {
  uint32_t a = 0xdeadbeef + static_cast<uint32_t>(bytes.size()), b = a, c = a;
  size_t place = 0;
  for (; bytes.size() - place > 12; place += 12) {
    a += word(bytes, place), b += word(bytes, place + 4), c += word(bytes, place + 8);
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
  }
  if (place == bytes.size()) return c;
  a += word(bytes, place), b += word(bytes, place + 4), c += word(bytes, place + 8);
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

// Reads bytes in order. Throws a Fault past their end.
class ByteCursor {
 public:
  ByteCursor(ByteSpan bytes, const char* what) : left_(bytes), what_(what) {}

  ByteSpan take(uint64_t count) {
    if (count > left_.size()) fault("its HDF5 structure is damaged: {} ends inside a field", what_);
    const ByteSpan taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  // Returns a little-endian number of 1, 2, 4 or 8 bytes.
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    const ByteSpan taken = take(bytes);
    for (size_t i = 0; i < bytes; ++i) value |= std::to_integer<uint64_t>(taken[i]) << (8 * i);
    return value;
  }
  size_t left() const { return left_.size(); }

 private:
  ByteSpan left_;
  const char* what_;
};

// A part of the file that begins with a signature and ends with a checksum.
class Walk {
 public:
  Walk(ByteSpan file, int64_t user_block, DenseGroups dense) : file_(file), user_block_(user_block), dense_(dense) {}

  void run() {
    constexpr size_t kSuperblock = 48;
    ByteCursor superblock(checked_block(0, kSuperblock, "\x89HDF\r\n\x1a\n", "the superblock"), "the superblock");
    const uint64_t version = superblock.number(1), offset_bytes = superblock.number(1), length_bytes = superblock.number(1);
    if (version < 2 || version > 3 || offset_bytes != 8 || length_bytes != 8)
      fault("its HDF5 superblock has version {} with numbers of {} and {} bytes, and checkpoints have version 2 or 3 with 8",
            version, offset_bytes, length_bytes);
    superblock.number(1);  // flags
    if (superblock.number(8) != static_cast<uint64_t>(user_block_))
      fault("its HDF5 structure is damaged: the superblock counts addresses from another place");
    superblock.take(16);  // the address of the superblock's extension, and the file's end, which libhdf5 compares with its size
    waiting_ = {superblock.number(8)};
    while (!waiting_.empty()) {
      const uint64_t address = waiting_.back();
      waiting_.pop_back();
      if (seen_.insert(address).second) header(address);
    }
  }

 private:
  [[noreturn]] void damaged(const char* what, uint64_t address, const char* problem) const {
    fault("its HDF5 structure is damaged: {} at byte {} {}", what, address + static_cast<uint64_t>(user_block_), problem);
  }

  // Returns the bytes at the address, `count` with signature and checksum, which are checked, without these two.
  ByteSpan checked_block(uint64_t address, uint64_t count, std::string_view signature, const char* what) const {
    const uint64_t size = file_.size() - static_cast<size_t>(user_block_);
    if (address > size || count > size - address) damaged(what, address, "is not in the file");
    if (count < signature.size() + kChecksumBytes) damaged(what, address, "is too small");
    const ByteSpan block = file_.subspan(static_cast<size_t>(user_block_) + address, count);
    if (std::memcmp(block.data(), signature.data(), signature.size()) != 0) damaged(what, address, "lacks its signature");
    const ByteSpan covered = block.first(count - kChecksumBytes);
    if (metadata_checksum(covered) != word(block, covered.size())) damaged(what, address, "does not fit its checksum");
    return covered.subspan(signature.size());
  }

  void header(uint64_t address) {
    constexpr const char* kWhat = "an object header";
    constexpr size_t kLargestPrefix = 4 + 2 + 16 + 4 + 8;
    const uint64_t start = static_cast<uint64_t>(user_block_) + address;
    if (address > file_.size() || start > file_.size()) damaged(kWhat, address, "is not in the file");
    ByteCursor prefix(file_.subspan(start, std::min<size_t>(kLargestPrefix, file_.size() - start)), kWhat);
    prefix.take(4);  // the signature, which is checked with the whole
    if (prefix.number(1) != 2) damaged(kWhat, address, "has an unknown version");
    const uint64_t flags = prefix.number(1), times = flags & 0x20 ? 16 : 0, phases = flags & 0x10 ? 4 : 0;
    prefix.take(times + phases);
    const size_t width = size_t{1} << (flags & 3);
    const uint64_t size = prefix.number(width), before = 4 + 2 + times + phases + width;
    if (size > file_.size()) damaged(kWhat, address, "is not in the file");
    const ByteSpan block = checked_block(address, before + size + kChecksumBytes, "OHDR", kWhat);
    const size_t extra = flags & 4 ? 2 : 0;  // bytes of each message's place in the order of attributes
    std::vector<std::pair<uint64_t, uint64_t>> more;
    messages(block.subspan(before - 4), extra, more);
    std::set<uint64_t> chunks;
    while (!more.empty()) {
      const auto [place, count] = more.back();
      more.pop_back();
      if (!chunks.insert(place).second) damaged("a part of an object header", place, "continues itself");
      messages(checked_block(place, count, "OCHK", "a part of an object header"), extra, more);
    }
  }

  // Walks the messages of one chunk. Adds the address and size of chunks that continue it to `more`.
  void messages(ByteSpan chunk, size_t extra, std::vector<std::pair<uint64_t, uint64_t>>& more) {
    ByteCursor cursor(chunk, "an object header");
    while (cursor.left() >= 4 + extra) {  // fewer bytes are a gap
      const uint64_t type = cursor.number(1), size = cursor.number(2);
      cursor.take(1 + extra);
      ByteCursor message(cursor.take(size), "a message of an object header");
      if (type == kContinuation) {
        const uint64_t place = message.number(8);
        more.emplace_back(place, message.number(8));
      } else if (type == kLink) {
        link(message);
      } else if (type == kLinkInfo || type == kAttributeInfo) {
        check_compact(message, type == kLinkInfo);
      }
    }
  }

  void link(ByteCursor& message) {
    message.number(1);  // version
    const uint64_t flags = message.number(1);
    const bool is_hard = !(flags & 0x08) || message.number(1) == 0;
    message.take((flags & 0x04 ? 8 : 0) +
                 (flags & 0x10 ? 1 : 0));                    // its place in the order of creation, its name's character set
    message.take(message.number(size_t{1} << (flags & 3)));  // its name
    if (is_hard) waiting_.push_back(message.number(8));
  }

  void check_compact(ByteCursor& message, bool has_links) {
    message.number(1);  // version
    const uint64_t flags = message.number(1);
    message.take(flags & 1 ? (has_links ? 8 : 2) : 0);  // the number of the last link or attribute that was made
    const uint64_t heap = message.number(8), names = message.number(8);
    if (heap == kNowhere || dense_ == DenseGroups::any) return;
    if (!has_links) damaged("a heap of attributes", heap, "is not part of this format");
    constexpr size_t kTreeHeader = 38, kBeforeCount = 2 + 4 + 2 + 2 + 1 + 1 + 8 + 2;
    ByteCursor tree(checked_block(names, kTreeHeader, "BTHD", "an index of links"), "an index of links");
    tree.take(kBeforeCount);
    if (tree.number(8) <= kMostCompactLinks) damaged("a heap of links", heap, "is not part of this format: the group is small");
  }

  ByteSpan file_;
  int64_t user_block_;
  DenseGroups dense_;
  std::vector<uint64_t> waiting_;
  std::set<uint64_t> seen_;
};

}  // namespace

void check_structure(ByteSpan file, int64_t user_block, DenseGroups dense) {
  Walk(file, user_block, dense).run();
}

}  // namespace zt::ckpt
