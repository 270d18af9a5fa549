#include "huggingface/text/oniguruma_class.h"

#include "huggingface/text/oniguruma.h"
#include "huggingface/text/oniguruma_names.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr int kDeepestSet = 8;

class OnigurumaSet {
 public:
  explicit OnigurumaSet(OnigurumaScanner& in) : in_(in) {}

  std::string translate() {
    in_.take();
    const bool is_negated = in_.take_if("^");
    read_items(0);
    const std::string word(kOnigurumaWord);
    if (!has_not_word_) return (is_negated ? "[^" : "[") + items_ + "]";
    // A set of PCRE2 cannot have the complement of several properties: it becomes an alternative.
    if (items_.empty()) return (is_negated ? "[" : "[^") + word + "]";
    return is_negated ? "(?:(?=[" + word + "])[^" + items_ + "])" : "(?:[^" + word + "]|[" + items_ + "])";
  }

 private:
  // Reads up to the ']' of the set. A set within a set adds its characters.
  void read_items(int depth) {
    if (depth > kDeepestSet) in_.refuse("more than 8 nested sets");
    for (bool is_first = true; is_first || in_.peek() != ']'; is_first = false) {
      if (in_.take_if("&&")) in_.refuse("the intersection '&&' of sets");
      if (in_.take_if("[:")) {
        read_posix();
      } else if (in_.peek() == '[') {
        in_.take();
        if (in_.take_if("^")) in_.refuse("a negated set within a set");
        read_items(depth + 1);
      } else if (in_.take_if("\\")) {
        read_escape();
      } else {
        read_range(in_.character());
      }
    }
    in_.take();
  }

  void read_posix() {
    const bool is_negated = in_.take_if("^");
    std::string name;
    while (!in_.take_if(":]")) name += in_.take();
    const auto content = posix_class(name);
    const bool is_one_property = content && content->starts_with("\\p") && content->rfind("\\p") == 0;
    if (!content || (is_negated && !is_one_property))
      in_.refuse(fmt::format("the class '[:{}{}:]'", is_negated ? "^" : "", name));
    items_ += is_negated ? "\\P" + content->substr(2) : *content;
  }

  void read_escape() {
    switch (in_.peek()) {
      case 'w':
        in_.take();
        items_ += kOnigurumaWord;
        return;
      case 'W':
        in_.take();
        has_not_word_ = true;
        return;
      case 'h':
        in_.take();
        items_ += "0-9a-fA-F";
        return;
      case 'b':
        in_.take();
        return read_range(0x08);
      default:
        break;
    }
    if (const auto property = in_.class_escape()) items_ += *property;
    else read_range(in_.character_escape());
  }

  // Adds a character, or a range that starts with it.
  void read_range(char32_t first) {
    items_ += OnigurumaScanner::literal_of(first);
    OnigurumaScanner ahead = in_;
    if (!ahead.take_if("-") || ahead.peek() == ']') return;
    if (ahead.peek() == '[') in_.refuse("a range that ends with a set");
    in_ = ahead;
    const char32_t last = in_.take_if("\\") ? in_.character_escape() : in_.character();
    if (last < first) in_.refuse("a range that ends before it starts");
    items_ += "-" + OnigurumaScanner::literal_of(last);
  }

  OnigurumaScanner& in_;
  std::string items_;
  bool has_not_word_ = false;
};

}  // namespace

std::string translate_class(OnigurumaScanner& in) {
  return OnigurumaSet(in).translate();
}

}  // namespace zt::data::huggingface
