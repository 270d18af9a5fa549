#include "ops/match.h"

#include "arguments.h"
#include "ops/convert.h"
#include "zt/base/error.h"

namespace zt::lua {

namespace {

constexpr int kNo = -1;
constexpr int kExact = 0;
constexpr int kConverted = 1;         // an integer as a floating number, or one integer as a list
constexpr int kNumberAsTensor = 100;  // so high that it is chosen only if no overload takes a number

// Returns the cost of converting `given` to `parameter`, or kNo if this is not possible.
int cost_of(const Parameter& parameter, const GivenArgument& given, lua_State* L) {
  const ArgumentForm form = given.form;
  const bool is_number = form == ArgumentForm::integer || form == ArgumentForm::number;
  const auto needs = [&](bool condition, int cost = kExact) { return condition ? cost : kNo; };
  if (form == ArgumentForm::nil) return needs(parameter.is_optional);
  switch (parameter.kind) {
    case ArgumentKind::tensor:
      if (form == ArgumentForm::tensor) return kExact;
      return needs((is_number || form == ArgumentForm::boolean) && !parameter.is_written, kNumberAsTensor);
    case ArgumentKind::tensors:
      return needs(form == ArgumentForm::list && given.elements.tensors);
    case ArgumentKind::optional_tensors:
      return needs(form == ArgumentForm::list && given.elements.optional_tensors);
    case ArgumentKind::integer:
      return needs(form == ArgumentForm::integer);
    case ArgumentKind::floating:
      return needs(is_number, form == ArgumentForm::number ? kExact : kConverted);
    case ArgumentKind::scalar:
      return needs(is_number || form == ArgumentForm::boolean);
    case ArgumentKind::boolean:
      return needs(form == ArgumentForm::boolean);
    case ArgumentKind::text:
      return needs(form == ArgumentForm::text);
    case ArgumentKind::integers:
      if (form == ArgumentForm::list) return needs(given.elements.integers);
      return needs(form == ArgumentForm::integer && parameter.takes_one, kConverted);
    case ArgumentKind::floatings:
    case ArgumentKind::scalars:
      return needs(form == ArgumentForm::list && given.elements.numbers);
    case ArgumentKind::booleans:
      return needs(form == ArgumentForm::list && given.elements.booleans);
    case ArgumentKind::dtype:
    case ArgumentKind::layout:
    case ArgumentKind::memory_format:
    case ArgumentKind::device:
      return needs(form == ArgumentForm::text && is_word(parameter.kind, lua_tostring(L, given.index)));
    case ArgumentKind::generator:
      return needs(form == ArgumentForm::generator);
  }
  return kNo;
}

// Returns the index of the positional argument for parameter `parameter_index`. A method's self is argument 0.
size_t argument_index_of(const Overload& overload, CallStyle style, size_t parameter_index) {
  if (style == CallStyle::function || parameter_index > overload.self_index) return parameter_index;
  return parameter_index == overload.self_index ? 0 : parameter_index + 1;
}

// Returns how many positional arguments, from `first` on, form an int[] that was written without braces: all of them, or 0.
size_t count_loose_sizes(const Overload& overload, const OperatorCall& call, const Parameter& parameter, size_t first) {
  if (!overload.takes_loose_sizes || parameter.kind != ArgumentKind::integers) return 0;
  for (size_t i = first; i < call.positional.size(); ++i) {
    if (call.positional[i].form != ArgumentForm::integer) return 0;
  }
  return call.positional.size() - first;
}

// Visits the parameters in order. Collects the match, or stops at the first parameter that does not fit.
class Matcher {
 public:
  Matcher(const Overload& overload, const OperatorCall& call, Mismatch* mismatch)
      : overload_(overload), call_(call), mismatch_(mismatch) {
    match_.overload = &overload;
  }

  std::optional<Match> run() {
    for (size_t parameter_index = 0; parameter_index < overload_.parameters.size(); ++parameter_index) {
      if (!add(parameter_index)) return std::nullopt;
    }
    if (used_positional_ < call_.positional.size()) {
      refuse([&] {
        return fmt::format("{} positional arguments given, it takes {}", call_.positional.size(), overload_.positional);
      });
      return std::nullopt;
    }
    if (used_named_ < call_.named.size()) return refuse([&] { return unknown_name(); }), std::nullopt;
    return std::move(match_);
  }

 private:
  bool add(size_t parameter_index) {
    const Parameter& parameter = overload_.parameters[parameter_index];
    const size_t argument_index = argument_index_of(overload_, call_.style, parameter_index);
    const GivenArgument* named = call_.named.empty() ? nullptr : call_.find(parameter.name);
    if (!parameter.is_keyword_only && argument_index < call_.positional.size()) {
      if (named) return refuse([&] { return fmt::format("'{}' is given twice, by place and by name", parameter.name); });
      return add_positional(parameter, argument_index);
    }
    if (named) {
      if (!add_given(parameter, *named, std::nullopt)) return false;
      ++used_named_;
      return true;
    }
    // A missing generator is the state's own (convert_absent).
    if (!parameter.default_value && parameter.kind != ArgumentKind::generator) {
      return refuse([&] { return fmt::format("'{}' is missing: {} expected", parameter.name, kind_text(parameter.kind)); });
    }
    match_.sources.push_back({});
    return true;
  }

  bool add_positional(const Parameter& parameter, size_t argument_index) {
    if (const size_t sizes = count_loose_sizes(overload_, call_, parameter, argument_index); sizes > 0) {
      used_positional_ += sizes;
      match_.sources.push_back({&call_.positional[argument_index], sizes});
      return true;
    }
    if (!add_given(parameter, call_.positional[argument_index], argument_index)) return false;
    ++used_positional_;
    return true;
  }

  bool add_given(const Parameter& parameter, const GivenArgument& given, std::optional<size_t> argument_index) {
    const int cost = cost_of(parameter, given, call_.L);
    if (cost == kNo) {
      return refuse([&] {
        return fmt::format("{}: {} expected, got {}", label(parameter, argument_index), kind_text(parameter.kind),
                           given_text(given));
      });
    }
    match_.cost += cost;
    match_.sources.push_back({&given});
    return true;
  }

  // Returns "argument 2 'other'". In a method call arguments are counted without self.
  std::string label(const Parameter& parameter, std::optional<size_t> argument_index) const {
    if (!argument_index) return fmt::format("'{}'", parameter.name);
    if (call_.style == CallStyle::method && *argument_index == 0) return "self";
    return fmt::format("argument {} '{}'", call_.style == CallStyle::method ? *argument_index : *argument_index + 1,
                       parameter.name);
  }

  std::string given_text(const GivenArgument& given) const {
    if (given.form == ArgumentForm::text) return fmt::format("'{}'", lua_tostring(call_.L, given.index));
    if (given.form == ArgumentForm::number || given.form == ArgumentForm::integer) return fmt::format("{}", given.number);
    return type_text(call_.L, given.index);
  }

  std::string unknown_name() const {
    for (const auto& named : call_.named) {
      const auto has_name = [&](const Parameter& parameter) { return parameter.name == named.name; };
      if (std::none_of(overload_.parameters.begin(), overload_.parameters.end(), has_name)) {
        return fmt::format("it has no argument named '{}'", named.name);
      }
    }
    return "an argument is given twice";
  }

  // Calls `reason` for the text only if the caller of `match` asked for it.
  bool refuse(auto&& reason) {
    if (mismatch_) *mismatch_ = {used_positional_ + used_named_, reason()};
    return false;
  }

  const Overload& overload_;
  const OperatorCall& call_;
  Mismatch* mismatch_;
  Match match_;
  size_t used_positional_ = 0;
  size_t used_named_ = 0;
};

// Throws Misuse for a named argument that no overload has. It is checked first, because it usually is a spelling mistake.
void refuse_unknown_names(const Operator& op, const OperatorCall& call) {
  std::vector<std::string> names;
  for (const auto& overload : op.overloads) {
    for (const auto& parameter : overload.parameters) {
      if (std::find(names.begin(), names.end(), parameter.name) == names.end()) names.push_back(parameter.name);
    }
  }
  for (const auto& named : call.named) {
    const bool is_known = std::find(names.begin(), names.end(), named.name) != names.end();
    if (!is_known) misuse("{} has no argument named '{}'{}", op.name, named.name, suggest(named.name, names));
  }
}

[[noreturn]] void refuse_call(const Operator& op, const OperatorCall& call) {
  refuse_unknown_names(op, call);
  Mismatch nearest_mismatch;
  const Overload* nearest_overload = nullptr;
  std::string candidates;
  for (const auto& overload : op.overloads) {
    Mismatch mismatch;
    match(overload, call, &mismatch);
    candidates += "\n  " + overload.text();
    if (nearest_overload && mismatch.fitting <= nearest_mismatch.fitting) continue;
    nearest_overload = &overload;
    nearest_mismatch = std::move(mismatch);
  }
  misuse("{} does not take these arguments: {}\nclosest: {}\ncandidates:{}", op.name, nearest_mismatch.reason,
         nearest_overload->text(), candidates);
}

}  // namespace

std::optional<Match> match(const Overload& overload, const OperatorCall& call, Mismatch* mismatch) {
  return Matcher(overload, call, mismatch).run();
}

Match choose(const Operator& op, const OperatorCall& call) {
  std::optional<Match> best;
  for (const auto& overload : op.overloads) {
    auto found = match(overload, call, nullptr);
    if (!found || (best && best->cost <= found->cost)) continue;
    best = std::move(found);
    if (best->cost == kExact) break;  // overloads come in the order of preference
  }
  if (!best) refuse_call(op, call);
  return std::move(*best);
}

}  // namespace zt::lua
