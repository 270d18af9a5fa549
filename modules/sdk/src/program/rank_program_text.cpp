// Programs as text: a header, then one action per line. '#' starts a comment line; empty lines are skipped.
//
//   program mode=train micro_batches=2 units=3 params=bf16     (types only if not fp32: params, grads, reduce)
//   unit 1 shard_axes=["dp"] sum_axes=["dp"] state=sharded     (only units with a UnitPlan other than the default)
//   buffer residual 1 shape=[128] dtype=float32 residence=own     (NAME index, of the buffers of passes)
//   COUNT axes=["dp"]
//   F 0 0 keep=inputs                                 (NAME [target] [micro-batch] {attribute=JSON})
//
// A string that is a single word is written without quotes.
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/program/rank_program.h"

namespace zt {

namespace {

bool is_word(std::string_view text) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) && std::all_of(text.begin(), text.end(), is_allowed);
}

std::string value_text(const Value& value) {
  const auto* text = value.get_if<std::string>();
  const bool is_bare = text && is_word(*text) && *text != "true" && *text != "false" && *text != "null";
  return is_bare ? *text : value.to_json().dump();
}

std::string names_text(const std::vector<std::string>& names) {
  return value_text(Value::List(names.begin(), names.end()));
}

Value parse_value(const std::string& name, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_discarded()) return Value::from_json(json);
  if (is_word(text)) return text;
  misuse("attribute '{}' has the value {}, which is neither JSON nor a word: quote strings", name, text);
}

// Splits a line at blanks outside of quotes and brackets.
std::vector<std::string> tokens_of(const std::string& line) {
  std::vector<std::string> tokens(1);
  int depth = 0;
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (!is_quoted && depth == 0 && std::isspace(static_cast<unsigned char>(c))) {
      if (!tokens.back().empty()) tokens.emplace_back();
      continue;
    }
    tokens.back() += c;
    if (is_quoted && c == '\\' && i + 1 < line.size()) tokens.back() += line[++i];
    else if (c == '"') is_quoted = !is_quoted;
    else if (!is_quoted && (c == '[' || c == '{')) ++depth;
    else if (!is_quoted && (c == ']' || c == '}')) --depth;
  }
  if (tokens.back().empty()) tokens.pop_back();
  return tokens;
}

// Parses the tokens from index `first` on as attributes.
Value::Table parse_attrs(const std::vector<std::string>& tokens, size_t first) {
  Value::Table attrs;
  for (size_t i = first; i < tokens.size(); ++i) {
    const size_t equals = tokens[i].find('=');
    const std::string name = tokens[i].substr(0, equals);
    if (equals == std::string::npos || !is_word(name)) misuse("'{}' is not an attribute: write name=value", tokens[i]);
    if (!attrs.emplace(name, parse_value(name, tokens[i].substr(equals + 1))).second)
      misuse("attribute '{}' is given twice", name);
  }
  return attrs;
}

int32_t parse_number(const std::string& text, const std::string& what) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) misuse("{} must be a number, not '{}'", what, text);
  return number;
}

// Removes the attribute `name` from `attrs` and returns it, or nil if it is absent.
Value take(Value::Table& attrs, const std::string& name) {
  const auto node = attrs.extract(name);
  return node.empty() ? Value() : std::move(node.mapped());
}

template <class T>
T take_as(Value::Table& attrs, const std::string& name, T otherwise) {
  const Value value = take(attrs, name);
  if (value.is_nil()) return otherwise;
  if (const T* held = value.get_if<T>()) return *held;
  misuse("'{}' cannot be {}", name, value.type_name());
}

int take_count(Value::Table& attrs, const std::string& name, int64_t otherwise) {
  const int64_t count = take_as<int64_t>(attrs, name, otherwise);
  if (count < 0 || count > 1'000'000'000) misuse("{}={} is out of range", name, count);
  return static_cast<int>(count);
}

// Removes a list of names from `attrs` and returns it; empty if it is absent.
std::vector<std::string> take_names(Value::Table& attrs, const std::string& name) {
  std::vector<std::string> names;
  for (const Value& item : take_as<Value::List>(attrs, name, {})) {
    const auto* text = item.get_if<std::string>();
    if (!text) misuse("'{}' holds {}: give a list of mesh axes' names", name, item.type_name());
    names.push_back(*text);
  }
  return names;
}

void refuse_rest(const Value::Table& attrs, std::vector<std::string> known) {
  if (!attrs.empty()) misuse("unknown key '{}'{}", attrs.begin()->first, suggest(attrs.begin()->first, known));
}

std::array<std::pair<const char*, c10::ScalarType*>, 3> types_of(Precision& precision) {
  return {{{"params", &precision.params}, {"grads", &precision.grads}, {"reduce", &precision.reduce}}};
}

void parse_header(const std::vector<std::string>& tokens, RankProgram& program) {
  Value::Table attrs = parse_attrs(tokens, 1);
  program.mode = parse_mode(take_as<std::string>(attrs, "mode", word_of(Mode::train)));
  const int64_t micro_batches = take_as<int64_t>(attrs, "micro_batches", 1);
  if (micro_batches < 1 || micro_batches > 1'000'000) misuse("micro_batches={} is out of range: give at least 1", micro_batches);
  program.micro_batches = static_cast<int>(micro_batches);
  const int64_t units = take_as<int64_t>(attrs, "units", 0);
  if (units < 0 || units > 1'000'000) misuse("units={} is out of range: give the model's number of units", units);
  program.units.resize(units);
  for (const auto& [name, type] : types_of(program.precision))
    *type = parse_float_type(take_as<std::string>(attrs, name, "fp32"), std::string(name));
  program.max_live = take_as<int64_t>(attrs, "max_live", 0);
  program.split_axes = take_names(attrs, "split");
  refuse_rest(attrs, {"mode", "micro_batches", "units", "params", "grads", "reduce", "max_live", "split"});
}

std::array<std::pair<const char*, Residence*>, 3> residences_of(UnitPlan& plan) {
  return {{{"state", &plan.state}, {"grads", &plan.grads}, {"params", &plan.params}}};
}

void parse_unit(const std::vector<std::string>& tokens, RankProgram& program) {
  const int32_t unit = tokens.size() > 1 ? parse_number(tokens[1], "the unit") : -1;
  if (unit < 0 || unit >= static_cast<int32_t>(program.units.size())) {
    misuse("unit {} is out of range: the header says units={}", unit, program.units.size());
  }
  Value::Table attrs = parse_attrs(tokens, 2);
  UnitPlan& plan = program.units[unit];
  plan.held = take_as<bool>(attrs, "held", true);
  plan.shard_axes = take_names(attrs, "shard_axes");
  plan.sum_axes = take_names(attrs, "sum_axes");
  for (const auto& [name, residence] : residences_of(plan))
    *residence = parse_word<Residence>(take_as<std::string>(attrs, name, "whole"), "unknown residence");
  plan.slices = take_count(attrs, "slices", 1);
  std::vector<std::string> known{"held", "shard_axes", "sum_axes", "state", "grads", "params", "slices"};
  for (const UnitData data : kAllData) {
    const std::string home = word_of(data) + "_home", stays = word_of(data) + "_stays";
    plan.home(data).tier = parse_word<Tier>(take_as<std::string>(attrs, home, "device"), "unknown home");
    plan.home(data).stays = take_count(attrs, stays, 0);
    known.insert(known.end(), {home, stays});
  }
  refuse_rest(attrs, known);
}

void parse_buffer(const std::vector<std::string>& tokens, RankProgram& program) {
  if (tokens.size() < 3) misuse("a buffer is 'buffer NAME index shape=[...]'");
  PassBuffer buffer{.type = resource_id(tokens[1]), .index = parse_number(tokens[2], "the index of the buffer")};
  Value::Table attrs = parse_attrs(tokens, 3);
  buffer.residence = parse_word<BufferResidence>(take_as<std::string>(attrs, "residence", "whole"), "unknown residence");
  buffer.dtype = parse_dtype(take_as<std::string>(attrs, "dtype", dtype_name(at::kFloat)));
  for (const Value& size : take_as<Value::List>(attrs, "shape", {})) {
    const auto* number = size.get_if<int64_t>();
    if (!number || *number < 0) misuse("'shape' holds {}: give whole numbers from 0", size.type_name());
    buffer.shape.push_back(*number);
  }
  buffer.is_saved = take_as<bool>(attrs, "saved", true);
  refuse_rest(attrs, {"residence", "dtype", "shape", "saved"});
  program.buffers.push_back(std::move(buffer));
}

std::string buffer_text(const PassBuffer& buffer) {
  std::string text = fmt::format("buffer {} {}", type_of(buffer.type).name, buffer.index);
  if (!buffer.shape.empty()) text += fmt::format(" shape=[{}]", fmt::join(buffer.shape, ","));
  text += fmt::format(" dtype={} residence={}", dtype_name(buffer.dtype), word_of(buffer.residence));
  return text + (buffer.is_saved ? "\n" : " saved=false\n");
}

void parse_line(const std::string& line, bool is_first, RankProgram& program) {
  const std::vector<std::string> tokens = tokens_of(line);
  const bool is_header = tokens[0] == "program";
  if (is_first && !is_header) misuse("a program starts with a line such as 'program mode=train micro_batches=1 units=0'");
  if (!is_first && is_header) misuse("a second header: a text holds the program of one rank");
  if (is_header) parse_header(tokens, program);
  else if (tokens[0] == "unit") parse_unit(tokens, program);
  else if (tokens[0] == "buffer") parse_buffer(tokens, program);
  else program.actions.push_back(parse_action(line));
}

}  // namespace

std::string action_text(const Action& action) {
  const Kind& info = kind(action.kind);
  std::string text = info.name;
  if (info.target != Index::none) text += fmt::format(" {}", action.target);
  if (info.has_micro_batch) text += fmt::format(" {}", action.micro_batch);
  for (const auto& [name, value] : action.attrs) text += fmt::format(" {}={}", name, value_text(value));
  return text;
}

Action parse_action(const std::string& line) {
  const std::vector<std::string> tokens = tokens_of(line);
  if (tokens.empty()) misuse("an action starts with the name of its kind: the line is empty");
  Action action{.kind = kind_id(tokens[0])};
  const Kind& info = kind(action.kind);
  size_t next = 1;
  const auto number = [&](const std::string& what) {
    if (next >= tokens.size()) misuse("{} needs {}", info.name, what);
    return parse_number(tokens[next++], fmt::format("{} of {}", what, info.name));
  };
  if (info.target != Index::none) action.target = number("a " + word_of(info.target));
  if (info.has_micro_batch) action.micro_batch = number("a micro-batch");
  action.attrs = parse_attrs(tokens, next);
  return action;
}

std::string RankProgram::text() const {
  std::string text = fmt::format("program mode={} micro_batches={} units={}", word_of(mode), micro_batches, units.size());
  Precision types = precision;
  for (const auto& [name, type] : types_of(types)) {
    if (*type != c10::ScalarType::Float) text += fmt::format(" {}={}", name, float_type_name(*type));
  }
  if (max_live > 0) text += fmt::format(" max_live={}", max_live);
  if (!split_axes.empty()) text += " split=" + names_text(split_axes);
  text += "\n";
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit] == UnitPlan{}) continue;
    UnitPlan plan = units[unit];
    text += fmt::format("unit {}", unit);
    if (!plan.held) text += " held=false";
    if (!plan.shard_axes.empty()) text += " shard_axes=" + names_text(plan.shard_axes);
    if (!plan.sum_axes.empty()) text += " sum_axes=" + names_text(plan.sum_axes);
    for (const auto& [name, residence] : residences_of(plan)) {
      if (*residence != Residence::whole) text += fmt::format(" {}={}", name, word_of(*residence));
    }
    if (plan.slices > 1) text += fmt::format(" slices={}", plan.slices);
    for (const UnitData data : kAllData) {
      const Home& home = plan.home(data);
      if (home.is_elsewhere()) text += fmt::format(" {}_home={}", word_of(data), word_of(home.tier));
      if (home.stays > 0) text += fmt::format(" {}_stays={}", word_of(data), home.stays);
    }
    text += "\n";
  }
  for (const PassBuffer& buffer : buffers) text += buffer_text(buffer);
  for (const Action& action : actions) text += action_text(action) + "\n";
  return text;
}

RankProgram RankProgram::parse(const std::string& text) {
  RankProgram program;
  bool is_first = true;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line[start] == '#') continue;
    try {
      parse_line(line, is_first, program);
    } catch (const Misuse& error) {
      misuse("program text, line {}: {}", number, error.what());
    }
    is_first = false;
  }
  if (is_first) misuse("the program text is empty: it needs at least the line 'program mode=train micro_batches=1 units=0'");
  return program;
}

}  // namespace zt
