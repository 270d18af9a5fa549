#include "huggingface/text/oniguruma.h"

#include "huggingface/text/oniguruma_class.h"
#include "huggingface/text/oniguruma_scanner.h"
#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kDeepestGroup = 200;
// The characters of Latin-1 that are letters to \w outside of sets only.
constexpr std::string_view kMoreWord = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

class OnigurumaTranslator {
 public:
  explicit OnigurumaTranslator(std::string_view pattern) : in_(pattern) {}

  std::string translate() {
    groups_.push_back({0, 0});
    while (!in_.at_end()) step();
    if (groups_.size() > 1) in_.refuse("a group without its ')'");
    close_options();
    return std::move(out_);
  }

 private:
  struct Group {
    size_t start;    // where it starts in out_
    size_t options;  // groups that (?i) opened within it, which end where it ends
  };

  void step() {
    const char next = in_.peek();
    switch (next) {
      case '\\':
        return escape();
      case '[':
        return atom(translate_class(in_));
      case '(':
        return open();
      case ')':
        return close();
      case '|':
        in_.take();
        out_ += '|';
        atom_ = kNoAtom;
        return;
      case '^':
        in_.take();
        return atom("(?m:^)");
      case '$':
        in_.take();
        return atom("(?m:$)");
      case '*':
      case '+':
      case '?':
        return repeat(std::string(1, in_.take()), true);
      case '{':
        return interval();
      default:
        return atom(in_.literal());
    }
  }

  void atom(std::string_view text) {
    atom_ = out_.size();
    is_repeated_ = false;
    out_ += text;
  }

  void escape() {
    const std::string word = std::string(kOnigurumaWord) + std::string(kMoreWord);
    in_.take();
    switch (in_.peek()) {
      case 'w':
        in_.take();
        return atom("[" + word + "]");
      case 'W':
        in_.take();
        return atom("[^" + word + "]");
      case 'b':
        in_.take();
        return atom("(?:(?<=[" + word + "])(?![" + word + "])|(?<![" + word + "])(?=[" + word + "]))");
      case 'B':
        in_.take();
        return atom("(?:(?<=[" + word + "])(?=[" + word + "])|(?<![" + word + "])(?![" + word + "]))");
      case 'A':
        in_.take();
        return atom("\\A");
      case 'z':
        in_.take();
        return atom("\\z");
      case 'Z':
        in_.take();
        return atom("\\Z");
      case 'h':
        in_.take();
        return atom("[0-9a-fA-F]");
      case 'H':
        in_.take();
        return atom("[^0-9a-fA-F]");
      default:
        break;
    }
    if (const auto property = in_.class_escape()) return atom(*property);
    atom(OnigurumaScanner::literal_of(in_.character_escape()));
  }

  // `may_possess`: a '+' that follows makes the repetition possessive. After an interval, Oniguruma repeats it instead.
  void repeat(const std::string& quantifier, bool may_possess) {
    if (atom_ == kNoAtom) in_.refuse("a quantifier without something to repeat");
    if (is_repeated_) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    out_ += quantifier;
    if (!in_.at_end() && (in_.peek() == '?' || (may_possess && in_.peek() == '+'))) out_ += in_.take();
    is_repeated_ = true;
  }

  // {n}, {n,}, {,n} or {n,m}; any other '{' is a character.
  void interval() {
    const auto bounds = in_.interval();
    if (!bounds) return atom(in_.literal());
    if (bounds->is_fixed && !in_.at_end() && in_.peek() == '?') in_.refuse("'?' after {n}");
    repeat(bounds->text, false);
  }

  void open() {
    const std::string start = in_.group_start();
    if (start.empty()) return;  // a comment
    if (start.ends_with(')')) {
      out_ += start.substr(0, start.size() - 1) + ":";
      ++groups_.back().options;
      atom_ = kNoAtom;
      return;
    }
    if (groups_.size() > kDeepestGroup) in_.refuse("more than 200 nested groups");
    groups_.push_back({out_.size(), 0});
    out_ += start;
    atom_ = kNoAtom;
  }

  void close() {
    in_.take();
    if (groups_.size() < 2) in_.refuse("a ')' without a group");
    close_options();
    atom_ = groups_.back().start;
    is_repeated_ = false;
    groups_.pop_back();
    out_ += ')';
  }

  void close_options() { out_.append(groups_.back().options, ')'); }

  static constexpr size_t kNoAtom = std::string::npos;

  OnigurumaScanner in_;
  std::string out_;
  std::vector<Group> groups_;
  size_t atom_ = kNoAtom;     // where the last atom starts in out_
  bool is_repeated_ = false;  // the last atom has a quantifier
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern) {
  return OnigurumaTranslator(pattern).translate();
}

}  // namespace zt::data::huggingface
