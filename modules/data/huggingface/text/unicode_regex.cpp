#include "huggingface/text/unicode_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "huggingface/text/oniguruma.h"
#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kHeapLimit = 20 * 1024;             // KiB
constexpr size_t kJitStack = 32 * 1024;                // bytes at the start
constexpr size_t kLongestJitStack = 20 * 1024 * 1024;  // bytes
constexpr size_t kLongestPattern = 64 * 1024;          // bytes
constexpr size_t kQuotedPattern = 200;                 // bytes of a pattern in a message

std::string quoted_pattern(const std::string& pattern) {
  if (pattern.size() <= kQuotedPattern) return pattern;
  size_t end = kQuotedPattern;
  while ((static_cast<unsigned char>(pattern[end]) & 0xC0) == 0x80) --end;
  return pattern.substr(0, end) + "...";
}

std::string message_of_pcre2(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// The memory with which a thread searches. PCRE2 lets several threads share a pattern, but not this memory.
class RegexWorkspace {
 public:
  RegexWorkspace()
      : context_(pcre2_match_context_create(nullptr)),
        match_(pcre2_match_data_create(1, nullptr)),
        stack_(pcre2_jit_stack_create(kJitStack, kLongestJitStack, nullptr)) {
    if (!context_ || !match_ || !stack_) throw std::bad_alloc();
    pcre2_set_match_limit(context_, kMatchLimit);
    pcre2_set_heap_limit(context_, kHeapLimit);
    pcre2_jit_stack_assign(context_, nullptr, stack_);
  }
  ~RegexWorkspace() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_data_free(match_);
    pcre2_match_context_free(context_);
  }
  RegexWorkspace(const RegexWorkspace&) = delete;
  RegexWorkspace& operator=(const RegexWorkspace&) = delete;

  // Searches from the offset `at`. Returns a code of PCRE2.
  int search(const pcre2_code* code, std::string_view text, size_t at, uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options, match_, context_);
  }
  size_t begin() const { return pcre2_get_ovector_pointer(match_)[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(match_)[1]; }

 private:
  pcre2_match_context* context_;
  pcre2_match_data* match_;
  pcre2_jit_stack* stack_;
};

RegexWorkspace& regex_workspace() {
  static thread_local RegexWorkspace workspace;
  return workspace;
}

}  // namespace

struct UnicodeRegex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

UnicodeRegex::UnicodeRegex(const std::string& pattern, std::string source) : source_(std::move(source)) {
  if (pattern.size() > kLongestPattern) {
    fault("the regular expression '{}' is too long ({} bytes, at most {})", quoted_pattern(source_), pattern.size(),
          kLongestPattern);
  }
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (!code) {
    fault("the regular expression '{}' is not supported: {} (as '{}' for PCRE2, byte {})", quoted_pattern(source_),
          message_of_pcre2(error), quoted_pattern(pattern), place);
  }
  code_ = std::make_shared<const Code>(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where this fails, PCRE2 interprets the pattern
}

UnicodeRegex UnicodeRegex::from_oniguruma(const std::string& pattern) {
  const std::string translated = with_context([&] { return fmt::format("the regular expression '{}'", quoted_pattern(pattern)); },
                                              [&] { return translate_oniguruma(pattern); });
  return UnicodeRegex(translated, pattern);
}

void UnicodeRegex::find_all(std::string_view text, std::vector<PatternSpan>& spans) const {
  spans.clear();
  RegexWorkspace& workspace = regex_workspace();
  size_t at = 0, written = 0;
  bool has_match = false;
  while (at <= text.size() && !text.empty()) {
    const int found = workspace.search(code_->code, text, at, PCRE2_NO_UTF_CHECK);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      fault("the regular expression '{}' fails at byte {} of a text: {}. Encode the text in parts, or use a simpler expression",
            quoted_pattern(source_), at, message_of_pcre2(found));
    }
    const size_t begin = workspace.begin(), end = workspace.end();
    if (begin == end && has_match && written == end) {
      at += at < text.size() ? bytes_of_character(text[at]) : 1;
      continue;
    }
    if (written != begin) spans.push_back({written, begin, false});
    spans.push_back({begin, end, true});
    at = written = end;
    has_match = true;
  }
  if (written != text.size() || text.empty()) spans.push_back({written, text.size(), false});
}

bool UnicodeRegex::matches_at_start(std::string_view text) const {
  return regex_workspace().search(code_->code, text, 0, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED) >= 0;
}

}  // namespace zt::data::huggingface
