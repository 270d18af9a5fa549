#include "matching.h"

#include <algorithm>
#include <ranges>
#include <set>

#include "zt/base/error.h"
#include "zt/base/regex.h"

namespace zt::ckpt {

namespace {

constexpr size_t kShown = 10;  // names per group in a message

class Names {
 public:
  explicit Names(const MatchOptions& options) {
    for (const auto& pattern : options.only) only_.emplace_back(pattern, "only");
    for (const auto& [from, to] : options.map) map_.emplace_back(Regex(from, "map"), to);
  }
  bool is_asked_for(const std::string& name) const {
    return only_.empty() || std::ranges::any_of(only_, [&](const Regex& each) { return each.is_found_in(name); });
  }
  std::string in_objects(std::string name) const {
    for (const auto& [from, to] : map_) name = from.replace(name, to);
    return name;
  }

 private:
  std::vector<Regex> only_;
  std::vector<std::pair<Regex, std::string>> map_;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void add_group(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const size_t shown = std::min(names.size(), kShown);
  text += fmt::format("\n  {} ({}): {}", what, names.size(),
                      fmt::join(names.begin(), names.begin() + static_cast<long>(shown), ", "));
  if (shown < names.size()) text += fmt::format(", and {} more", names.size() - shown);
}

// Returns the positions of tensors or values in their list, by their name in the objects.
template <class Things, class NameOf>
std::map<std::string, int> by_name(const Things& things, const Names& names, const NameOf& name_of) {
  std::map<std::string, int> found;
  int place = 0;
  for (const auto& thing : things) {
    const auto [entry, is_new] = found.emplace(names.in_objects(name_of(thing)), place++);
    if (!is_new)
      misuse("the map gives two things of the checkpoint the name '{}', one of them '{}'", entry->first, name_of(thing));
  }
  return found;
}

// Marks tensors that belong to plain values as used: it is no error if no object wants them.
void mark_referred(const Index& index, std::vector<uint8_t>& is_used) {
  std::set<std::string> referred;
  for (Value value : std::views::values(values_of(index)))
    for_each_reference(value, [&](Value&, const std::string& tensor) { referred.insert(tensor); });
  for (size_t i = 0; i < index.tensors.size(); ++i) is_used[i] = referred.contains(index.tensors[i].name) ? 1 : 0;
}

// The wanted kinds for which the checkpoint states another kind. Names that belong to them are not loaded.
class OtherKinds {
 public:
  // saved: position of a value in `table`, by its name in the objects.
  OtherKinds(const std::vector<StatedKind>& wanted, const std::map<std::string, int>& saved, const Value::Table& table) {
    for (const StatedKind& stated : wanted) {
      const auto found = saved.find(stated.name);
      if (found == saved.end()) continue;
      const auto* kind = std::next(table.begin(), found->second)->second.get_if<std::string>();
      if (kind && *kind != stated.kind)
        others_.emplace_back(stated, fmt::format("{} is {}, saved as {}", stated.name, stated.kind, *kind));
    }
  }

  // Marks saved names of these kinds as used, so that they are not reported as unused. `first`: offset of `saved` in `is_used`.
  void mark_used(const std::map<std::string, int>& saved, size_t first, std::vector<uint8_t>& is_used) const {
    for (const auto& [name, place] : saved) {
      if (find(name) != others_.end()) is_used[first + static_cast<size_t>(place)] = 1;
    }
  }
  // Returns whether `name` belongs to one of these kinds, and remembers that kind for refused().
  bool refuse(const std::string& name) {
    const auto found = find(name);
    if (found != others_.end()) refused_.insert(found->second);
    return found != others_.end();
  }
  std::vector<std::string> refused() const { return {refused_.begin(), refused_.end()}; }

 private:
  using Others = std::vector<std::pair<StatedKind, std::string>>;
  Others::const_iterator find(const std::string& name) const {
    return std::ranges::find_if(others_, [&](const auto& other) { return other.first.holds(name); });
  }

  Others others_;
  std::set<std::string> refused_;
};

bool is_kind(const Contents& wanted, const std::string& name) {
  return std::ranges::any_of(wanted.kinds, [&](const StatedKind& stated) { return stated.name == name; });
}

}  // namespace

const Value::Table& values_of(const Index& index) {
  static const Value::Table none;
  const auto* table = index.values.get_if<Value::Table>();
  return table ? *table : none;
}

std::vector<std::string> renamed(std::vector<std::string> names, const std::vector<std::pair<std::string, std::string>>& map) {
  MatchOptions options;
  options.map = map;
  const Names rules(options);
  for (std::string& name : names) name = rules.in_objects(name);
  return names;
}

Matches match(const Contents& wanted, const Index& index, const MatchOptions& options) {
  const Names names(options);
  const auto saved = by_name(index.tensors, names, [](const SavedTensor& tensor) { return tensor.name; });
  const Value::Table& table = values_of(index);
  const auto saved_values = by_name(table, names, [](const auto& entry) { return entry.first; });
  Matches matches;
  matches.is_used.resize(index.tensors.size() + table.size());
  mark_referred(index, matches.is_used);
  OtherKinds others(wanted.kinds, saved_values, table);
  others.mark_used(saved, 0, matches.is_used);
  others.mark_used(saved_values, index.tensors.size(), matches.is_used);
  for (const Part& tensor : wanted.parts) {
    matches.tensors.push_back(-1);
    if (!names.is_asked_for(tensor.name) || others.refuse(tensor.name)) continue;
    const auto found = saved.find(tensor.name);
    if (found == saved.end()) {
      matches.missing.push_back(tensor.name);
      continue;
    }
    const SavedTensor& source = index.tensors[found->second];
    matches.is_used[found->second] = 1;
    if (source.shape != tensor.shape)
      matches.misshapen.push_back(
          fmt::format("{} is {}, saved as {}", tensor.name, shape_text(tensor.shape), shape_text(source.shape)));
    else matches.tensors.back() = found->second;
  }
  for (const auto& [name, value] : wanted.values) {
    if (!names.is_asked_for(name) || others.refuse(name)) continue;
    const auto found = saved_values.find(name);
    if (found == saved_values.end()) {
      if (!is_kind(wanted, name)) matches.missing.push_back(name);  // older checkpoints state no kind
      continue;
    }
    matches.is_used[index.tensors.size() + found->second] = 1;
    matches.values[name] = std::next(table.begin(), found->second)->first;
  }
  matches.of_another_kind = others.refused();
  return matches;
}

std::string problems(const Matches& matches, const Index& index, const std::vector<uint8_t>& is_used,
                     const MatchOptions& options) {
  const Names names(options);
  std::vector<std::string> extra;
  const auto note = [&](const std::string& name, size_t place) {
    if (!is_used[place] && names.is_asked_for(names.in_objects(name))) extra.push_back(name);
  };
  size_t place = 0;
  for (const SavedTensor& tensor : index.tensors) note(tensor.name, place++);
  for (const auto& [name, value] : values_of(index)) {
    if (name.find('/') != std::string::npos) note(name, place);
    ++place;
  }
  std::string text;
  add_group(text, "not in the checkpoint", matches.missing);
  add_group(text, "in the checkpoint only", extra);
  add_group(text, "of another shape", matches.misshapen);
  add_group(text, "of another kind", matches.of_another_kind);
  return text;
}

}  // namespace zt::ckpt
