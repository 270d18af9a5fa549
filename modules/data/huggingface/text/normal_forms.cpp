#include "huggingface/text/normal_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "huggingface/text/unicode.h"
#include "huggingface/text/unicode_exceptions.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kLongestDecomposition = 32;  // characters; the longest of Unicode, U+FDFA, has 18
constexpr char32_t kFirstMark = 0x300;        // no character before it combines with the one before
constexpr char32_t kFirstCompatible = 0xA0;   // no character before it has a decomposition

bool composes(NormalForm form) {
  return form == NormalForm::nfc || form == NormalForm::nfkc;
}

bool is_compatible(NormalForm form) {
  return form == NormalForm::nfkc || form == NormalForm::nfkd;
}

int combining_class(char32_t character) {
  if (character < kFirstMark || is_exception(Exceptions::normal_form, character)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(character))->combining_class;
}

// Returns whether the form of a character neither differs from the character nor depends on what is before it.
bool is_inert(char32_t character, NormalForm form) {
  if (character < (form == NormalForm::nfc ? kFirstMark : kFirstCompatible)) return true;
  if (is_exception(Exceptions::normal_form, character)) return false;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(character));
  const bool is_hangul = (character >= 0xAC00 && character <= 0xD7A3) || (character >= 0x1100 && character <= 0x11FF);
  return property->decomp_seqindex == UINT16_MAX && !is_hangul && property->category != UTF8PROC_CATEGORY_MN &&
         property->category != UTF8PROC_CATEGORY_MC && property->category != UTF8PROC_CATEGORY_ME;
}

void append_decomposition(std::vector<utf8proc_int32_t>& out, char32_t character, NormalForm form) {
  const auto code = static_cast<utf8proc_int32_t>(character);
  if (is_exception(Exceptions::normal_form, character)) {
    out.push_back(code);
    return;
  }
  std::array<utf8proc_int32_t, kLongestDecomposition> parts{};
  int boundary = 0;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (is_compatible(form) ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(code, parts.data(), parts.size(), options, &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    fault("cannot decompose the character U+{:04X}: {}. Install the version of utf8proc that ztoolkit asks for",
          static_cast<uint32_t>(character), utf8proc_errmsg(count));
  }
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// Sorts each run of combining marks by their classes.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto class_of = [](utf8proc_int32_t code) { return combining_class(static_cast<char32_t>(code)); };
  for (auto at = codes.begin(); at != codes.end();) {
    if (class_of(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, codes.end(), [&](auto code) { return class_of(code) == 0; });
    std::stable_sort(at, end, [&](auto a, auto b) { return class_of(a) < class_of(b); });
    at = end;
  }
}

// Composes the characters between those that tokenizers does not know, since these block a composition.
void compose(std::vector<utf8proc_int32_t>& codes) {
  std::vector<utf8proc_int32_t> composed;
  const auto is_unknown = [](auto code) { return is_exception(Exceptions::normal_form, static_cast<char32_t>(code)); };
  for (auto at = codes.begin(); at != codes.end();) {
    const auto end = std::find_if(at, codes.end(), is_unknown);
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (at != end) composed.insert(composed.end(), at, at + utf8proc_normalize_utf32(&*at, end - at, options));
    if (end != codes.end()) composed.push_back(*end);
    at = end == codes.end() ? end : end + 1;
  }
  codes = std::move(composed);
}

// Completes the form of decomposed characters.
void finish_form(std::vector<utf8proc_int32_t>& codes, NormalForm form) {
  order_marks(codes);
  if (composes(form)) compose(codes);
}

// Returns whether a character of class 0 may be the second one of a composition: a mark, or a vowel or final consonant of Hangul.
bool may_follow(utf8proc_int32_t code) {
  if (code >= 0x1100 && code <= 0x11FF) return code > 0x1112;
  const auto category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME;
}

// Returns whether the form of the characters `before` and that of later ones, whose first code is `next`, do not depend on each
// other. `before`: decomposed.
bool is_boundary(const std::vector<utf8proc_int32_t>& before, utf8proc_int32_t next, NormalForm form) {
  if (combining_class(static_cast<char32_t>(next)) != 0) return false;
  if (!composes(form) || !may_follow(next)) return true;
  std::vector<utf8proc_int32_t> both = before;
  finish_form(both, form);
  both = {both.back(), next};
  compose(both);
  return both.size() == 2;
}

std::string text_of(const std::vector<utf8proc_int32_t>& codes) {
  std::string text;
  for (const auto code : codes) append_character(text, static_cast<char32_t>(code));
  return text;
}

// Returns the bytes of whole characters with which both texts begin.
size_t common_front(std::string_view a, std::string_view b) {
  size_t front = 0;
  while (front < a.size() && front < b.size()) {
    const size_t size = bytes_of_character(a[front]);
    if (a.substr(front, size) != b.substr(front, size)) break;
    front += size;
  }
  return front;
}

// Returns the bytes of whole characters with which both texts end.
size_t common_back(std::string_view a, std::string_view b) {
  size_t back = 0;
  while (back < a.size() && back < b.size()) {
    const size_t end = a.size() - back, at = previous_character(a, end), size = end - at;
    if (b.size() < back + size || a.substr(at, size) != b.substr(b.size() - back - size, size)) break;
    back += size;
  }
  return back;
}

// A part of a text that has a form by itself.
struct FormPart {
  size_t begin, first_end, end;         // its bytes; the first character ends at first_end
  std::vector<utf8proc_int32_t> codes;  // its decomposition
};

// Writes the form of a part. Bytes at both ends that do not change keep their own sources. Of the others, those that the first
// character has by itself, and at least one character, come from it.
void write_form(TextEdit& edit, const std::string& text, FormPart& part, NormalForm form) {
  const std::string_view old = std::string_view(text).substr(part.begin, part.end - part.begin);
  finish_form(part.codes, form);
  const std::string all = text_of(part.codes);
  const size_t front = common_front(old, all), back = common_back(old.substr(front), std::string_view(all).substr(front));
  const std::string_view changed = std::string_view(all).substr(front, all.size() - front - back);
  edit.keep(part.begin, part.begin + front);
  if (front == 0 && part.first_end < part.end && !changed.empty()) {
    std::vector<utf8proc_int32_t> alone;
    append_decomposition(alone, character_at(text, part.begin), form);
    finish_form(alone, form);
    const size_t from_first =
        std::min(std::max(common_front(text_of(alone), changed), bytes_of_character(changed[0])), changed.size());
    edit.replace(part.begin, part.first_end, changed.substr(0, from_first));
    edit.replace(part.first_end, part.end - back, changed.substr(from_first));
  } else {
    edit.replace(part.begin + front, part.end - back, changed);
  }
  edit.keep(part.end - back, part.end);
}

// Writes the form of the bytes [begin, end): that of each of the shortest parts that have one by themselves.
void write_segment(TextEdit& edit, const std::string& text, size_t begin, size_t end, NormalForm form) {
  FormPart part{begin, begin, begin, {}};
  std::vector<utf8proc_int32_t> codes;
  for (size_t at = begin, next = begin; at < end; at = next) {
    next = at + bytes_of_character(text[at]);
    codes.clear();
    append_decomposition(codes, character_at(text, at), form);
    if (!part.codes.empty() && !codes.empty() && is_boundary(part.codes, codes.front(), form)) {
      write_form(edit, text, part, form);
      part = {at, at, at, {}};
    }
    part.codes.insert(part.codes.end(), codes.begin(), codes.end());
    if (part.first_end == part.begin) part.first_end = next;
    part.end = next;
  }
  write_form(edit, text, part, form);
}

}  // namespace

// A segment starts at an inert character: what is before it does not change its form.
void normalize_form(AlignedText& text, NormalForm form) {
  const std::string& old = text.text;
  TextEdit edit(text);
  size_t kept = 0;  // the text before it is written
  for (size_t at = 0; at < old.size();) {
    size_t end = at + bytes_of_character(old[at]);
    bool changes = !is_inert(character_at(old, at), form);
    while (end < old.size() && !is_inert(character_at(old, end), form)) {
      end += bytes_of_character(old[end]);
      changes = true;
    }
    if (changes) {
      edit.keep(kept, at);
      write_segment(edit, old, at, end, form);
      kept = end;
    }
    at = end;
  }
  if (kept == 0) return;
  edit.keep(kept, old.size());
  text = edit.finish();
}

}  // namespace zt::data::huggingface
