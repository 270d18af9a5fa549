#include "template/macro.h"

#include <algorithm>

#include "template/library/objects.h"

namespace zt::data::jinja {

namespace {

std::string macro_label(const MacroDefinition& macro) {
  return macro.name.empty() ? "the call block" : "the macro '" + macro.name + "'";
}

// Removes the argument of this name from the list and returns it.
std::optional<TemplateValue> take_named(std::vector<std::pair<std::string, TemplateValue>>& named, const std::string& name) {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& each) { return each.first == name; });
  if (found == named.end()) return std::nullopt;
  TemplateValue value = std::move(found->second);
  named.erase(found);
  return value;
}

}  // namespace

std::optional<TemplateValue> MacroObject::attribute(TemplateRun& run, const std::string& name) {
  if (name == "name") return macro_.name.empty() ? TemplateValue() : run.text(from_utf8(macro_.name, 0).value_or(MarkedText()));
  if (name == "caller") return TemplateValue(macro_.uses_caller);
  if (name == "catch_kwargs") return TemplateValue(macro_.uses_kwargs);
  if (name == "catch_varargs") return TemplateValue(macro_.uses_varargs);
  if (name != "arguments") return std::nullopt;
  std::vector<TemplateValue> names;
  for (const std::string& parameter : macro_.parameters)
    names.push_back(run.text(from_utf8(parameter, 0).value_or(MarkedText())));
  return run.tuple(std::move(names));
}

void MacroObject::print(TemplateRun&, MarkedText& out) {
  append_ascii("<Macro ", 0, out);
  if (macro_.name.empty()) append_ascii("anonymous", 0, out);
  else out += MarkedText(1, '\'') + from_utf8(macro_.name, 0).value_or(MarkedText()) + MarkedText(1, '\'');
  out.push_back('>');
}

TemplateValue Evaluator::call_macro(const MacroDefinition& macro, const TemplateScope& scope, const CallArguments& arguments) {
  TemplateScope& inner = make_scope(macro.body, scope);
  const size_t parameters = macro.parameters.size(), given = std::min(arguments.positional.size(), parameters);
  auto named = arguments.named;
  std::vector<size_t> missing;
  bool found_caller = false;
  for (size_t i = 0; i < parameters; ++i) {
    const std::string& name = macro.parameters[i];
    found_caller = found_caller || name == "caller";
    if (i < given) inner.set(name, arguments.positional[i]);
    else if (auto value = take_named(named, name)) inner.set(name, std::move(*value));
    else missing.push_back(i);
  }
  if (macro.uses_caller && !found_caller) {
    auto caller = take_named(named, "caller");
    const bool has_caller = caller && !caller->is_none();
    inner.set("caller",
              has_caller ? std::move(*caller) : run_.undefined("there is no 'caller', because no call block calls the macro"));
  }
  if (macro.uses_kwargs) {
    CallArguments rest;
    rest.named = std::move(named);
    inner.set("kwargs", run_.dict(make_dict(run_, rest)));
  } else if (!named.empty()) {
    run_.fail("{} has no parameter '{}': it takes the parameters of its definition only", macro_label(macro),
              named.front().first);
  }
  const auto extra = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
  if (macro.uses_varargs) inner.set("varargs", run_.tuple({extra, arguments.positional.end()}));
  else if (extra != arguments.positional.end())
    run_.fail("{} takes at most {}, but has {}", macro_label(macro), counted(static_cast<int64_t>(parameters), "argument"),
              arguments.positional.size());
  const size_t first_default = parameters - macro.defaults.size();
  for (const size_t i : missing) {
    if (i >= first_default) inner.set(macro.parameters[i], evaluate(*macro.defaults[i - first_default], inner));
    else inner.set(macro.parameters[i], run_.undefined(message("the parameter '{}' was not given", macro.parameters[i])));
  }
  Flow flow = Flow::normal;
  return run_.text(capture(macro.body.statements, inner, flow));
}

}  // namespace zt::data::jinja
