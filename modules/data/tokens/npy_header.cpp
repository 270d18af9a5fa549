// Parses and makes the header of an .npy file: "\x93NUMPY", the version (2 bytes), the length of the text (2 bytes in version 1,
// 4 in version 2), then the text: a Python dictionary with the keys descr, fortran_order and shape, spaces, and a line feed.
#include <charconv>
#include <optional>

#include "npy.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::array kTypes{NpyType::u8, NpyType::u16, NpyType::u32, NpyType::u64, NpyType::i64};

template <class... Args>
[[noreturn]] void defect(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  fault(
      "cannot read the token file '{}': {}. Make it again with ztoolkit tokenize, or save a one-dimensional array of uint16 "
      "or uint32 (a mask: of uint8) with numpy.save",
      path, fmt::format(format, std::forward<Args>(args)...));
}

// Reads the dictionary's text from left to right. Throws Fault (by `defect`) at an unexpected character.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  bool accept(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) defect(path_, "its header is damaged ('{}' expected at character {})", wanted, at_);
  }
  std::string quoted() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) defect(path_, "its header is damaged (a text without an end)");
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return std::string(found);
  }
  bool truth() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    defect(path_, "its header is damaged (True or False expected at character {})", at_);
  }
  int64_t number() {
    skip_spaces();
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) defect(path_, "its header is damaged (a size expected at character {})", at_);
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  void expect_end() {
    skip_spaces();
    if (at_ != text_.size()) defect(path_, "its header is damaged (more text after the dictionary)");
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

struct Dictionary {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

std::vector<int64_t> read_shape(DictionaryReader& reader) {
  std::vector<int64_t> shape;
  reader.expect('(');
  while (!reader.accept(')')) {
    shape.push_back(reader.number());
    if (!reader.accept(',')) {
      reader.expect(')');
      break;
    }
  }
  return shape;
}

Dictionary read_dictionary(std::string_view text, const std::string& path) {
  Dictionary found;
  DictionaryReader reader(text, path);
  reader.expect('{');
  while (!reader.accept('}')) {
    const std::string key = reader.quoted();
    reader.expect(':');
    if (key == "descr") {
      if (reader.accept('[')) defect(path, "it holds records, not plain numbers");
      found.descr = reader.quoted();
    } else if (key == "fortran_order") {
      found.fortran_order = reader.truth();
    } else if (key == "shape") {
      found.shape = read_shape(reader);
    } else {
      defect(path, "its header has the unknown key '{}'", key);
    }
    if (!reader.accept(',')) {
      reader.expect('}');
      break;
    }
  }
  reader.expect_end();
  const char* missing = !found.descr ? "descr" : !found.fortran_order ? "fortran_order" : !found.shape ? "shape" : nullptr;
  if (missing) defect(path, "its header has no '{}'", missing);
  return found;
}

NpyType parse_type(const std::string& text, const std::string& path) {
  if (text == "<u1") return NpyType::u8;  // a byte has no order: NumPy writes "|u1" and reads both
  for (const NpyType type : kTypes) {
    if (text == descr(type)) return type;
  }
  if (text == "|u1") return NpyType::u8;  // as NumPy writes it: single bytes have no order
  if (text.starts_with('>')) defect(path, "its numbers are big-endian (dtype '{}')", text);
  defect(path, "its dtype is '{}', where tokens are '<u2' (uint16) or '<u4' (uint32)", text);
}

// Returns the text of the dictionary, which follows the magic, the version and the length.
std::string_view header_text(std::string_view head, int64_t file_bytes, const std::string& path) {
  if (head.empty()) defect(path, "it is empty");
  if (!head.starts_with(kMagic)) defect(path, "it is not an .npy file (it does not start with \\x93NUMPY)");
  if (head.size() < 10) defect(path, "it is cut short inside its header ({} bytes)", head.size());
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(head[i])); };
  const size_t major = byte(6), minor = byte(7);
  if ((major != 1 && major != 2) || minor != 0)
    defect(path, "it has .npy version {}.{}, where 1.0 or 2.0 is expected", major, minor);
  const size_t begin = major == 1 ? 10 : 12;
  if (head.size() < begin) defect(path, "it is cut short inside its header ({} bytes)", head.size());
  const size_t length = major == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (file_bytes < static_cast<int64_t>(begin + length)) {
    defect(path, "it is cut short inside its header ({} bytes, where the header alone needs {})", file_bytes, begin + length);
  }
  if (head.size() < begin + length) {
    defect(path, "its header would have {} bytes, where at most {} are expected", begin + length, kMostNpyHeaderBytes);
  }
  return head.substr(begin, length);
}

void check_length(int64_t file_bytes, const NpyHeader& header, const std::string& path) {
  const int64_t held = file_bytes - header.data_offset;
  // Compare by division: the count of a damaged header times the item size may overflow 64 bits.
  const bool is_exact = held % item_size(header.type) == 0 && held / item_size(header.type) == header.count;
  if (is_exact) return;
  const bool is_short = held / item_size(header.type) < header.count;
  defect(path, "it is {}: its header declares {} numbers of {} bytes, {} bytes follow", is_short ? "cut short" : "too long",
         header.count, item_size(header.type), held);
}

}  // namespace

int64_t item_size(NpyType type) {
  return type == NpyType::u8 ? 1 : type == NpyType::u16 ? 2 : type == NpyType::u32 ? 4 : 8;
}

const char* descr(NpyType type) {
  switch (type) {
    case NpyType::u8:
      return "<u1";
    case NpyType::u16:
      return "<u2";
    case NpyType::u32:
      return "<u4";
    case NpyType::u64:
      return "<u8";
    case NpyType::i64:
      break;
  }
  return "<i8";
}

NpyHeader parse_npy_header(std::string_view head, int64_t file_bytes, const std::string& path) {
  const std::string_view text = header_text(head, file_bytes, path);
  const Dictionary dictionary = read_dictionary(text, path);
  NpyHeader header;
  header.type = parse_type(*dictionary.descr, path);
  const auto& shape = *dictionary.shape;
  if (shape.size() != 1) defect(path, "its shape is ({}), where one dimension is needed", fmt::join(shape, ", "));
  if (*dictionary.fortran_order) defect(path, "it is in Fortran order");
  header.count = shape[0];
  header.data_offset = text.data() + text.size() - head.data();
  if (header.data_offset % item_size(header.type) != 0) {
    defect(path, "its numbers start at byte {}, which is not a multiple of their size", header.data_offset);
  }
  check_length(file_bytes, header, path);
  return header;
}

std::string make_npy_header(NpyType type, int64_t count) {
  const size_t length = kNpyHeaderBytes - 10;
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr(type), count);
  text.resize(length - 1, ' ');
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(length & 0xFF), static_cast<char>(length >> 8)};
  return header + text + "\n";
}

}  // namespace zt::data
