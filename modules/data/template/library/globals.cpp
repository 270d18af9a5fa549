// The functions that every template has: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <map>

#include "template/library/arguments.h"
#include "template/library/objects.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

using GlobalFunction = TemplateValue (*)(TemplateRun&, const CallArguments&);

TemplateValue make_namespace(TemplateRun& run, const CallArguments& arguments) {
  auto* const result = run.make<NamespaceObject>();
  const TemplateDict attributes = make_dict(run, arguments);
  for (const auto& [key, value] : attributes.entries()) {
    if (!key.text()) run.fail("an attribute of a namespace has a {} as its name: give strings", key.type_name());
    result->set(run, to_utf8(*key.text()), value);
  }
  return result;
}

TemplateValue make_template_dict(TemplateRun& run, const CallArguments& arguments) {
  return run.dict(make_dict(run, arguments));
}

// Returns each of its items again and again.
class CyclerObject : public TemplateObject {
 public:
  explicit CyclerObject(std::vector<TemplateValue> items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<TemplateValue> attribute(TemplateRun& run, const std::string& name) override {
    if (name == "current") return items_[at_];
    if (name != "next" && name != "reset") return std::nullopt;
    return run.make<FunctionObject>(name, [this, name](TemplateRun& of, const CallArguments& arguments) -> TemplateValue {
      refuse_arguments(of, name, arguments);
      const TemplateValue current = name == "next" ? items_[at_] : TemplateValue();
      at_ = name == "next" ? (at_ + 1) % items_.size() : 0;
      return current;
    });
  }

 private:
  const std::vector<TemplateValue> items_;
  size_t at_ = 0;
};

TemplateValue make_cycler(TemplateRun& run, const CallArguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) run.fail("'cycler' takes values, at least one");
  return run.make<CyclerObject>(arguments.positional);
}

TemplateValue make_joiner(TemplateRun& run, const CallArguments& arguments) {
  const BoundArguments bound(run, "joiner", arguments, {"sep"});
  const TemplateValue separator = bound.find(0) ? *bound.find(0) : run.ascii(", ");
  return run.make<FunctionObject>("joiner", [separator, is_used = false](TemplateRun& of, const CallArguments& inner) mutable {
    refuse_arguments(of, "joiner", inner);
    return std::exchange(is_used, true) ? separator : of.ascii("");
  });
}

TemplateValue raise_exception(TemplateRun& run, const CallArguments& arguments) {
  const BoundArguments bound(run, "raise_exception", arguments, {"message"}, 1);
  run.fail("the template refuses the messages: {}", to_utf8(text_of(run, bound[0])));
}

// Replaces the fields that Python's strftime has and C's lacks, or has with another meaning: a datetime has no zone there.
std::string adapt_time_format(const std::string& format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const char field = format[++i];
    if (field == 'f') out += "000000";
    else if (field != 'z' && field != 'Z') out.append({'%', field});
  }
  return out;
}

TemplateValue strftime_now(TemplateRun& run, const CallArguments& arguments) {
  constexpr size_t kLongest = 4096;
  const BoundArguments bound(run, "strftime_now", arguments, {"format"}, 1);
  const MarkedText& given = bound.text(0);
  run.charge_text(given.size());
  const std::string format = adapt_time_format(to_utf8(given));
  if (format.empty() || given.empty()) return run.ascii("");
  const std::time_t now = run.now();
  std::tm parts{};
  if (!localtime_r(&now, &parts)) run.fail("the time cannot be converted to local time: set the clock of the machine");
  std::string buffer(kLongest, 0);
  const size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
  if (length == 0 && format.find('%') == std::string::npos)
    run.fail("the format of 'strftime_now' gives more than {} bytes", kLongest);
  auto text = from_utf8(std::string_view(buffer).substr(0, length), all_marks(given));
  if (!text) run.fail("'strftime_now' gives a text that is not UTF-8: set a locale with UTF-8, or use digits");
  return run.text(std::move(*text));
}

}  // namespace

std::optional<TemplateValue> find_global(TemplateRun& run, const std::string& name) {
  static const std::map<std::string_view, GlobalFunction> functions = {
      {"cycler", make_cycler},       {"dict", make_template_dict}, {"joiner", make_joiner},
      {"namespace", make_namespace}, {"range", RangeObject::make}, {"raise_exception", raise_exception},
      {"strftime_now", strftime_now}};
  const auto found = functions.find(name);
  if (found == functions.end()) return std::nullopt;
  return run.make<FunctionObject>(name, found->second);
}

}  // namespace zt::data::jinja
