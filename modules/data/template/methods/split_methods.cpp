// Methods of strings that return lists and tuples: split, partition and the like.
#include <algorithm>

#include "template/library/arguments.h"
#include "template/methods/access.h"
#include "template/value/compare.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// Splits at white space, from the left or the right, at most `limit` times.
std::vector<MarkedView> split_words(MarkedView text, size_t limit, bool from_end) {
  std::vector<MarkedView> parts;
  const StripSide side = from_end ? StripSide::right : StripSide::left;
  for (text = strip(text, side); !text.empty(); text = strip(text, side)) {
    if (parts.size() == limit) {
      parts.push_back(text);
      break;
    }
    size_t length = 0;
    while (length < text.size() && !is_space(from_end ? text[text.size() - 1 - length] : text[length])) ++length;
    parts.push_back(from_end ? text.substr(text.size() - length) : text.substr(0, length));
    from_end ? text.remove_suffix(length) : text.remove_prefix(length);
  }
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<MarkedView> split_at(MarkedView text, MarkedView separator, size_t limit) {
  std::vector<MarkedView> parts;
  size_t begin = 0;
  for (const size_t place : occurrences(text, separator, limit)) {
    parts.push_back(text.substr(begin, place - begin));
    begin = place + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// The same from the right. The reversed text is searched, because occurrences that overlap count from the right here.
std::vector<MarkedView> split_at_from_end(MarkedView text, MarkedView separator, size_t limit) {
  const MarkedText reversed(text.rbegin(), text.rend()), reversed_separator(separator.rbegin(), separator.rend());
  std::vector<MarkedView> parts;
  size_t end = text.size();
  for (const size_t place : occurrences(reversed, reversed_separator, limit)) {
    const size_t after = text.size() - place;
    parts.push_back(text.substr(after, end - after));
    end = after - separator.size();
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

TemplateValue list_of(TemplateRun& run, const TemplateValue& self, const std::vector<MarkedView>& parts, bool is_tuple = false) {
  std::vector<TemplateValue> items;
  for (const MarkedView part : parts) {
    run.charge(1);
    items.push_back(run.text(MarkedText(part), self.string()->is_markup));
  }
  return run.list(std::move(items), is_tuple);
}

template <bool from_end>
TemplateValue split_method(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "split", arguments, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  const size_t splits = limit < 0 ? MarkedView::npos : static_cast<size_t>(limit);
  run.charge_text(self.text()->size());
  if (!bound.find_given(0)) return list_of(run, self, split_words(*self.text(), splits, from_end));
  const MarkedText& separator = bound.text(0);
  if (separator.empty()) run.fail("the separator of 'split' is empty: give at least one character, or none for white space");
  run.charge_text(separator.size());
  return list_of(run, self,
                 from_end ? split_at_from_end(*self.text(), separator, splits) : split_at(*self.text(), separator, splits));
}

TemplateValue splitlines(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "splitlines", arguments, {"keepends"});
  return list_of(run, self, lines_of(*self.text(), bound.integer(0, 0) != 0 ? LineEnds::kept : LineEnds::dropped));
}

template <bool from_end>
TemplateValue partition(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "partition", arguments, {"sep"}, 1, NamedArguments::refused);
  const MarkedText& separator = bound.text(0);
  if (separator.empty()) run.fail("the separator of 'partition' is empty: give at least one character");
  const MarkedView text = *self.text();
  run.charge_text(text.size() + separator.size());
  const size_t place = from_end ? find_last_text(text, separator) : find_text(text, separator);
  if (place == MarkedView::npos) {
    const std::vector<MarkedView> at_start = {text, {}, {}}, at_end = {{}, {}, text};
    return list_of(run, self, from_end ? at_end : at_start, true);
  }
  const MarkedView before = text.substr(0, place), after = text.substr(place + separator.size());
  const std::vector<MarkedView> parts = {before, text.substr(place, separator.size()), after};
  return list_of(run, self, parts, true);
}

}  // namespace

MethodFunction find_split_method(std::string_view name) {
  static const std::map<std::string_view, MethodFunction> methods = {
      {"partition", partition<false>}, {"rpartition", partition<true>}, {"rsplit", split_method<true>},
      {"split", split_method<false>},  {"splitlines", splitlines},
  };
  const auto found = methods.find(name);
  return found == methods.end() ? nullptr : found->second;
}

}  // namespace zt::data::jinja
