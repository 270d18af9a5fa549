// The variable `loop` of a for loop.
#pragma once

#include "template/evaluator.h"

namespace zt::data::jinja {

class LoopObject : public TemplateObject {
 public:
  using Recursion = std::function<TemplateValue(const TemplateValue& iterable)>;
  // `length` is absent for items whose number is not known before. `recursion` is empty if the loop is not recursive.
  LoopObject(TemplateIterator& iterator, std::optional<int64_t> length, int64_t depth, Recursion recursion)
      : iterator_(iterator), length_(length), depth_(depth), recursion_(std::move(recursion)) {}
  // Moves to the next item and returns it, or nullopt at the end.
  std::optional<TemplateValue> advance(TemplateRun& run);

  std::string type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return true; }
  TemplateValue call(TemplateRun& run, const CallArguments& arguments) override;
  std::optional<TemplateValue> attribute(TemplateRun& run, const std::string& name) override;
  std::optional<int64_t> length(TemplateRun& run) override;
  void print(TemplateRun& run, MarkedText& out) override;

 private:
  bool is_last(TemplateRun& run);
  TemplateValue cycle(TemplateRun& run, const CallArguments& arguments) const;
  bool has_changed(TemplateRun& run, const CallArguments& arguments);

  TemplateIterator& iterator_;
  std::optional<int64_t> length_;
  const int64_t depth_;
  const Recursion recursion_;
  int64_t index_ = -1;
  std::optional<TemplateValue> before_, current_;
  std::vector<TemplateValue> after_;  // items that were read ahead
  size_t after_at_ = 0;
  std::optional<TemplateValue> last_changed_;
};

}  // namespace zt::data::jinja
