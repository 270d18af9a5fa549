#include "matching.h"

#include <algorithm>
#include <ranges>
#include <set>

#include "zt/base/error.h"
#include "zt/base/regex.h"

namespace zt::ckpt {

namespace {

constexpr size_t kShown = 10;  // names per group in a message
constexpr std::string_view kExperts = ".experts.", kRouter = ".router.", kOptimizer = "optimizer/";

// The options `only` and `map`.
class NameRules {
 public:
  explicit NameRules(const MatchOptions& options) {
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
std::map<std::string, int> by_name(const Things& things, const NameRules& names, const NameOf& name_of) {
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
void mark_referred(const MasterIndex& index, std::vector<uint8_t>& is_used) {
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

  bool holds(const std::string& name) const { return find(name) != others_.end(); }
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

// Returns whether no object wants this name, on purpose.
bool is_ignored(const Contents& wanted, const std::string& name) {
  return std::ranges::any_of(wanted.ignored, [&](const std::string& prefix) { return name.starts_with(prefix); });
}

// Throws Misuse if the option `only` asks for nothing but what the objects leave out on purpose.
void check_asked(const Contents& wanted, const NameRules& names, const std::map<std::string, int>& saved) {
  std::string left_out;
  for (const std::string& name : std::views::keys(saved)) {
    if (!names.is_asked_for(name)) continue;
    if (!is_ignored(wanted, name)) return;
    left_out = name;
  }
  if (!left_out.empty())
    misuse(
        "`only` asks for '{}' and its like, for which the objects have no place: a trainer without an optimizer holds parameters "
        "only",
        left_out);
}

// Returns the part of a name before `word` ("model/blocks.1" of "model/blocks.1.experts.up.weight"), or nullopt.
std::optional<std::string> before(const std::string& name, std::string_view word) {
  const size_t at = name.rfind(word);
  return at == std::string::npos ? std::nullopt : std::optional(name.substr(0, at));
}

// Finds the dense MLPs of which experts are to be copies.
class Upcycling {
 public:
  Upcycling(const MatchOptions& options, const std::map<std::string, int>& saved) : is_on_(options.upcycle), saved_(saved) {}

  // Returns the number of the dense tensor for experts of this name, or -1. Remembers the layer.
  int dense_of(const std::string& name) {
    const auto layer = before(name, kExperts);
    if (!layer) return -1;
    const auto found = saved_.find(*layer + ".mlp." + name.substr(layer->size() + kExperts.size()));
    if (found == saved_.end()) return -1;
    has_found_ = true;
    if (!is_on_) return -1;
    layers_.insert(*layer);
    return found->second;
  }
  // Returns whether there is a dense MLP for any of the experts, asked for or not.
  bool has_found() const { return has_found_; }
  // True for a tensor of the router of such a layer.
  bool is_fresh(const std::string& name) const {
    const auto layer = before(name, kRouter);
    return layer && layers_.contains(*layer);
  }

 private:
  bool is_on_, has_found_ = false;
  const std::map<std::string, int>& saved_;
  std::set<std::string> layers_;
};

// Notes a tensor of another shape.
void note_shape(const TensorPart& wanted, const SavedTensor& saved, Matches& matches) {
  const auto &a = wanted.shape, &b = saved.shape;
  const auto layer = before(wanted.name, kExperts) ? before(wanted.name, kExperts) : before(wanted.name, kRouter);
  const std::string param = wanted.name.substr(wanted.name.rfind('/') + 1);
  const bool is_of_tokens = param == "embedding.weight" || param == "head.weight" || param == "head.bias";  // of nn.gpt
  const bool has_other_rows = !a.empty() && a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
  if (is_of_tokens && has_other_rows) {
    matches.of_other_vocabulary.insert(fmt::format("{} has {} tokens, saved with {}", param, a[0], b[0]));
  } else if (layer && has_other_rows) {
    matches.of_other_experts.insert(
        fmt::format("{} has {} experts, saved with {}", layer->substr(layer->rfind('/') + 1), a[0], b[0]));
  } else {
    matches.misshapen.push_back(fmt::format("{} is {}, saved as {}", wanted.name, shape_text(a), shape_text(b)));
  }
}

// The rules by which saved names are matched.
struct MatchRules {
  const NameRules& names;
  OtherKinds& others;
  const std::map<std::string, int>& saved;  // number of a saved tensor by its name in the objects
};

void match_tensors(const Contents& wanted, const MasterIndex& index, const MatchRules& rules, const MatchOptions& options,
                   Matches& matches) {
  Upcycling upcycling(options, rules.saved);
  for (const TensorPart& tensor : wanted.parts) {
    matches.tensors.push_back(-1);
    matches.copies.push_back(0);
    if (!rules.names.is_asked_for(tensor.name) || rules.others.refuse(tensor.name)) continue;
    const auto found = rules.saved.find(tensor.name);
    const bool is_saved = found != rules.saved.end();
    const int number = is_saved ? found->second : upcycling.dense_of(tensor.name);
    if (number < 0) {
      matches.missing.push_back(tensor.name);
      continue;
    }
    const SavedTensor& source = index.tensors[number];
    matches.is_used[number] = 1;
    if (!is_saved) matches.has_dense = true;
    std::vector<int64_t> shape = source.shape;
    if (!is_saved) shape.insert(shape.begin(), tensor.shape.empty() ? 0 : tensor.shape[0]);
    if (shape == tensor.shape) {
      matches.tensors.back() = number;
      matches.copies.back() = is_saved ? 0 : shape[0];
    } else if (is_saved && tensor.rows) {
      const bool has_rows = std::ranges::equal(shape | std::views::drop(1), tensor.shape | std::views::drop(1));
      const bool is_summed = has_rows && tensor.rows == Visitor::Rows::summed;
      matches.tensors.back() = is_summed ? number : Matches::kDropped;
      (is_summed ? matches.summed : matches.dropped).push_back(tensor.name);
    } else if (is_saved) {
      note_shape(tensor, source, matches);
    } else {
      matches.misshapen.push_back(fmt::format("{} is {}, the dense {} is {}", tensor.name, shape_text(tensor.shape), source.name,
                                              shape_text(source.shape)));
    }
  }
  matches.could_upcycle = upcycling.has_found() && !options.upcycle;
  std::erase_if(matches.missing, [&](const std::string& name) { return upcycling.is_fresh(name); });
}

}  // namespace

const Value::Table& values_of(const MasterIndex& index) {
  static const Value::Table none;
  const auto* table = index.values.get_if<Value::Table>();
  return table ? *table : none;
}

std::vector<std::string> renamed(std::vector<std::string> names, const std::vector<std::pair<std::string, std::string>>& map) {
  const NameRules rules({.map = map});
  for (std::string& name : names) name = rules.in_objects(name);
  return names;
}

Matches match(const Contents& wanted, const MasterIndex& index, const MatchOptions& options) {
  const NameRules names(options);
  const auto saved = by_name(index.tensors, names, [](const SavedTensor& tensor) { return tensor.name; });
  const Value::Table& table = values_of(index);
  const auto saved_values = by_name(table, names, [](const auto& entry) { return entry.first; });
  Matches matches;
  matches.is_used.resize(index.tensors.size() + table.size());
  mark_referred(index, matches.is_used);
  OtherKinds others(wanted.kinds, saved_values, table);
  for (const auto& [things, first] : {std::pair(&saved, size_t{0}), std::pair(&saved_values, index.tensors.size())}) {
    for (const auto& [name, place] : *things) {  // not reported as unused
      if (others.holds(name) || is_ignored(wanted, name)) matches.is_used[first + static_cast<size_t>(place)] = 1;
    }
  }
  check_asked(wanted, names, saved);
  match_tensors(wanted, index, {names, others, saved}, options, matches);
  for (const auto& [name, value] : wanted.values) {
    if (!names.is_asked_for(name) || others.refuse(name)) continue;
    const auto found = saved_values.find(name);
    if (found == saved_values.end()) {
      const bool is_kind = std::ranges::find(wanted.kinds, name, &StatedKind::name) != wanted.kinds.end();
      if (!is_kind) matches.missing.push_back(name);  // older checkpoints state no kind
      continue;
    }
    matches.is_used[index.tensors.size() + found->second] = 1;
    matches.values[name] = std::next(table.begin(), found->second)->first;
  }
  matches.of_another_kind = others.refused();
  return matches;
}

std::string problems(const Matches& matches, const MasterIndex& index, const std::vector<uint8_t>& is_used,
                     const MatchOptions& options) {
  const NameRules names(options);
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
  add_group(text, "of another number of experts", {matches.of_other_experts.begin(), matches.of_other_experts.end()});
  add_group(text, "of another vocabulary", {matches.of_other_vocabulary.begin(), matches.of_other_vocabulary.end()});
  add_group(text, "of another kind", matches.of_another_kind);
  if (!matches.of_other_experts.empty())
    text += "\na load neither adds nor removes experts: make the model with the checkpoint's number, or leave the layers out";
  if (!matches.of_other_vocabulary.empty())
    text += "\nanother vocabulary has other tokens: make the model with the checkpoint's `vocab`, or leave these parameters out";
  const auto is_of_optimizer = [](const std::string& name) { return name.find(kOptimizer) != std::string::npos; };
  // Not every optimizer has state.
  const bool has_optimizer =
      std::ranges::any_of(values_of(index), [](const auto& value) { return value.first.ends_with("trainer/optimizer"); });
  if (!has_optimizer && std::ranges::any_of(matches.missing, is_of_optimizer))
    text += "\nthe checkpoint is of a trainer without an optimizer: take its parameters by ckpt.load(path, {model = trainer})";
  if (matches.could_upcycle)
    text += "\nexperts can start as copies of the checkpoint's dense MLPs: ckpt.load(path, {model = trainer}, {upcycle = true})";
  return text;
}

}  // namespace zt::ckpt
