#include "template/loop.h"

#include "template/library/objects.h"
#include "template/value/compare.h"

namespace zt::data::jinja {

std::optional<TemplateValue> LoopObject::advance(TemplateRun& run) {
  auto item = after_at_ < after_.size() ? std::optional(after_[after_at_++]) : iterator_.next(run);
  if (!item) return std::nullopt;
  ++index_;
  before_ = std::move(current_);
  current_ = item;
  return item;
}

bool LoopObject::is_last(TemplateRun& run) {
  if (after_at_ < after_.size()) return false;
  auto item = iterator_.next(run);
  if (!item) return true;
  after_.push_back(std::move(*item));
  return false;
}

std::optional<int64_t> LoopObject::length(TemplateRun& run) {
  if (!length_) {
    while (auto item = iterator_.next(run)) after_.push_back(std::move(*item));
    length_ = index_ + 1 + static_cast<int64_t>(after_.size() - after_at_);
  }
  return length_;
}

TemplateValue LoopObject::cycle(TemplateRun& run, const CallArguments& arguments) const {
  if (arguments.positional.empty() || !arguments.named.empty()) run.fail("'loop.cycle' takes values, at least one");
  return arguments.positional[static_cast<size_t>(index_) % arguments.positional.size()];
}

bool LoopObject::has_changed(TemplateRun& run, const CallArguments& arguments) {
  if (!arguments.named.empty()) run.fail("'loop.changed' takes values without names");
  const TemplateValue values = run.tuple(arguments.positional);
  if (last_changed_ && is_equal(run, *last_changed_, values)) return false;
  last_changed_ = values;
  return true;
}

TemplateValue LoopObject::call(TemplateRun& run, const CallArguments& arguments) {
  if (!recursion_) run.fail("the loop calls itself, but is not recursive: write `recursive` at the end of its for tag");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) run.fail("'loop' takes one argument: what it iterates");
  return recursion_(arguments.positional.front());
}

std::optional<TemplateValue> LoopObject::attribute(TemplateRun& run, const std::string& name) {
  if (name == "index") return TemplateValue(index_ + 1);
  if (name == "index0") return TemplateValue(index_);
  if (name == "first") return TemplateValue(index_ == 0);
  if (name == "last") return TemplateValue(is_last(run));
  if (name == "length") return TemplateValue(*length(run));
  if (name == "revindex") return TemplateValue(*length(run) - index_);
  if (name == "revindex0") return TemplateValue(*length(run) - index_ - 1);
  if (name == "depth") return TemplateValue(depth_ + 1);
  if (name == "depth0") return TemplateValue(depth_);
  if (name == "previtem") return before_ ? *before_ : run.undefined("there is no item before the first");
  if (name == "nextitem") return is_last(run) ? run.undefined("there is no item after the last") : after_[after_at_];
  if (name == "cycle")
    return run.make<FunctionObject>(name,
                                    [this](TemplateRun& of, const CallArguments& arguments) { return cycle(of, arguments); });
  if (name == "changed")
    return run.make<FunctionObject>(
        name, [this](TemplateRun& of, const CallArguments& arguments) -> TemplateValue { return has_changed(of, arguments); });
  return std::nullopt;
}

void LoopObject::print(TemplateRun& run, MarkedText& out) {
  append_ascii(fmt::format("<LoopContext {}/{}>", index_ + 1, *length(run)), 0, out);
}

TemplateValue Evaluator::render_loop(const ForStatement& loop, const TemplateValue& iterable, TemplateScope& scope,
                                     int64_t depth) {
  MarkedText outer = std::exchange(out_, MarkedText());
  run_loop(loop, iterable, scope, depth);
  return run_.text(std::exchange(out_, std::move(outer)));
}

Evaluator::Flow Evaluator::run_loop(const ForStatement& loop, const TemplateValue& iterable, TemplateScope& scope,
                                    int64_t depth) {
  TemplateIterator* iterator = iterate(run_, iterable);
  if (!iterator) run_.fail("a {} has no items to loop over: give a list, string, dict or range", iterable.type_name());
  std::optional<int64_t> length = length_of(run_, iterable);
  if (loop.condition) {
    length.reset();
    iterator = iterate_with(run_, [this, iterator, &loop, &scope](TemplateRun& run) -> std::optional<TemplateValue> {
      while (auto item = iterator->next(run)) {
        TemplateScope& of_item = *run.make<TemplateScope>(&scope);
        assign(*loop.target, *item, of_item);
        if (is_true(run, evaluate(*loop.condition, of_item))) return item;
      }
      return std::nullopt;
    });
  }
  LoopObject::Recursion recursion;
  if (loop.is_recursive)
    recursion = [this, &loop, &scope, depth](const TemplateValue& inner) { return render_loop(loop, inner, scope, depth + 1); };
  auto* const object = run_.make<LoopObject>(*iterator, length, depth, std::move(recursion));
  bool is_complete = false;  // one execution of the body reached its end
  while (const auto item = object->advance(run_)) {
    TemplateScope& inner = make_scope(loop.body, scope);
    inner.set("loop", object);
    assign(*loop.target, *item, inner);
    const auto flow = execute(loop.body.statements, inner);
    if (flow == Flow::breaks) break;
    is_complete = is_complete || flow == Flow::normal;
  }
  if (is_complete) return Flow::normal;
  return execute(loop.otherwise.statements, make_scope(loop.otherwise, scope));
}

}  // namespace zt::data::jinja
