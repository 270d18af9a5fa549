#include "zt/program/rank_program.h"

#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/random/rng.h"

namespace zt {

ZT_DEFINE_OBJECT(Pass, "Pass")

Pass::~Pass() = default;

namespace {

// Returns the attribute as a list. An absent attribute and an empty table are an empty list. Throws Misuse for anything else.
const Value::List& list_attr(const Action& action, const char* name) {
  static const Value::List kEmpty;
  const auto found = action.attrs.find(name);
  if (found == action.attrs.end()) return kEmpty;
  if (const auto* list = found->second.get_if<Value::List>()) return *list;
  const auto* table = found->second.get_if<Value::Table>();
  if (table && table->empty()) return kEmpty;
  misuse("attribute '{}' is {}: give a list", name, found->second.type_name());
}

// `of`: what has these names.
std::vector<std::string> names_attr(const Action& action, const char* name, const char* of) {
  std::vector<std::string> names;
  for (const Value& item : list_attr(action, name)) {
    const auto* text = item.get_if<std::string>();
    if (!text) misuse("attribute '{}' holds {}: give a list of {} names", name, item.type_name(), of);
    names.push_back(*text);
  }
  return names;
}

// Returns the index of an attribute's value among `words`.
int word_of(const Action& action, const char* name, const std::vector<std::string>& words, const char* otherwise) {
  const std::string word = action.attr(name, otherwise);
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) misuse("unknown value '{}' of {}{}", word, name, suggest(word, words));
  return static_cast<int>(found - words.begin());
}

// The values of the attribute `sum`, from GradientPart::first on.
const std::vector<std::string>& part_names() {
  static const std::vector<std::string> names{"first", "middle", "last"};
  return names;
}

}  // namespace

std::string Action::attr(const std::string& name, const std::string& otherwise) const {
  const auto found = attrs.find(name);
  if (found == attrs.end()) return otherwise;
  if (const auto* text = found->second.get_if<std::string>()) return *text;
  misuse("attribute '{}' is {}: give a string", name, found->second.type_name());
}

int64_t Action::number(const std::string& name, int64_t otherwise) const {
  const auto found = attrs.find(name);
  if (found == attrs.end()) return otherwise;
  if (const auto* number = found->second.get_if<int64_t>()) return *number;
  misuse("attribute '{}' is {}: give a whole number", name, found->second.type_name());
}

bool Action::flag(const std::string& name) const {
  const auto found = attrs.find(name);
  if (found == attrs.end()) return false;
  if (const auto* flag = found->second.get_if<bool>()) return *flag;
  misuse("attribute '{}' is {}: give true or false", name, found->second.type_name());
}

std::vector<std::string> Action::axes() const {
  return names_attr(*this, "axes", "mesh axes'");
}

std::vector<std::string> Action::sample_axes() const {
  return names_attr(*this, attrs.contains("samples") ? "samples" : "axes", "mesh axes'");
}

std::vector<std::string> Action::norm_axes() const {
  return names_attr(*this, "squares", "mesh axes'");
}

bool Action::is_in_host_memory() const {
  return parse_word<Tier>(attr("memory", word_of(Tier::device)), "unknown memory") == Tier::host;
}

UnitData Action::unit_data() const {
  return parse_word<UnitData>(attr("what"), "unknown data");
}

StepData Action::step_data() const {
  return parse_word<StepData>(attr("what"), "unknown data");
}

std::vector<std::string> Action::buffers() const {
  return names_attr(*this, "buffers", "buffers'");
}

void Action::set_axes(const std::vector<std::string>& axes) {
  attrs["axes"] = Value::List(axes.begin(), axes.end());
}

void Action::set_sample_axes(const std::vector<std::string>& axes) {
  attrs.erase("samples");
  if (axes != this->axes()) attrs["samples"] = Value::List(axes.begin(), axes.end());
}

Keep Action::keep() const {
  static const std::vector<std::string> words{"graph", "inputs", "none"};
  return static_cast<Keep>(word_of(*this, "keep", words, "graph"));
}

GradientPart Action::gradient_part() const {
  if (!attrs.contains("sum")) return GradientPart::whole;
  return static_cast<GradientPart>(1 + word_of(*this, "sum", part_names(), ""));
}

void Action::set_gradient_part(GradientPart part) {
  attrs.erase("sum");
  if (part != GradientPart::whole) attrs["sum"] = part_names()[static_cast<size_t>(part) - 1];
}

std::vector<int> Action::units() const {
  std::vector<int> units{target};
  for (const Value& item : list_attr(*this, "units")) {
    const auto* unit = item.get_if<int64_t>();
    if (!unit) misuse("attribute 'units' holds {}: give a list of units' numbers", item.type_name());
    units.push_back(static_cast<int>(*unit));
  }
  return units;
}

void insert_around(RankProgram& program, std::vector<std::vector<Action>> before, std::vector<std::vector<Action>> after) {
  std::vector<Action> actions;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    std::ranges::move(before.at(i), std::back_inserter(actions));
    actions.push_back(std::move(program.actions[i]));
    std::ranges::move(after.at(i), std::back_inserter(actions));
  }
  program.actions = std::move(actions);
}

std::optional<UnitData> unit_data_of(const Resource& resource, const Precision& precision) {
  if (resource.type == resource::state) return UnitData::state;
  if (resource.type == resource::shard) return UnitData::params;
  if (resource.type == resource::grad_shard) return UnitData::grads;
  if (resource.type == resource::master) return precision.is_mixed() ? UnitData::state : UnitData::params;
  return std::nullopt;
}

std::vector<bool> positions_run(const RankProgram& program, const ModelInfo& model) {
  std::vector<bool> runs(model.positions.size(), false);
  for (const Action& action : program.actions) {
    if (action.kind == Kinds::get().forward) runs.at(action.target) = true;
  }
  return runs;
}

const PassBuffer* RankProgram::find_buffer(ResourceId type, int32_t index) const {
  const auto found =
      std::ranges::find_if(buffers, [&](const PassBuffer& each) { return each.type == type && each.index == index; });
  return found == buffers.end() ? nullptr : &*found;
}

uint64_t RankProgram::hash() const {
  return stable_hash(text());
}

bool moves_values(const RankProgram& program) {
  return std::ranges::count(program.actions, Kinds::get().evict_value, &Action::kind) > 0;
}

void slice_steps(RankProgram& program) {
  std::vector<Action> result;
  for (Action& action : program.actions) {
    const bool is_whole = action.kind == Kinds::get().step && !action.attrs.contains("parts");
    const int64_t parts = is_whole ? program.units.at(static_cast<size_t>(action.target)).slices : 1;
    for (int64_t part = 0; part < parts; ++part) {
      result.push_back(action);
      if (parts > 1) result.back().attrs.merge(Value::Table{{"part", part}, {"parts", parts}});
    }
  }
  program.actions = std::move(result);
}

RankProgram base_program(const ModelInfo& model, Mode mode, int micro_batches) {
  if (micro_batches < 1) misuse("a program of {} micro-batches does nothing: give at least 1", micro_batches);
  const Kinds& kinds = Kinds::get();
  const bool is_training = mode == Mode::train;
  const int last = static_cast<int>(model.positions.size()) - 1;
  RankProgram program{
      .mode = mode, .micro_batches = micro_batches, .units = std::vector<UnitPlan>(model.units.size()), .actions = {}};
  auto& actions = program.actions;
  if (mode != Mode::generate) actions.push_back({.kind = kinds.count});
  for (int m = 0; m < micro_batches; ++m) {
    for (int p = 0; p <= last; ++p) {
      actions.push_back({.kind = kinds.forward, .target = p, .micro_batch = m});
      if (!is_training) actions.back().attrs["keep"] = "none";
    }
    for (int p = last; is_training && p >= 0; --p) actions.push_back({.kind = kinds.backward, .target = p, .micro_batch = m});
  }
  if (mode != Mode::generate) actions.push_back({.kind = kinds.norm});
  for (size_t unit = 0; is_training && unit < model.units.size(); ++unit) {
    if (model.units[unit].trainable) actions.push_back({.kind = kinds.step, .target = static_cast<int32_t>(unit)});
  }
  for (int p = 0; is_training && p <= last; ++p) {
    if (model.positions[p].has_update) actions.push_back({.kind = kinds.update, .target = p});
  }
  return program;
}

}  // namespace zt
