// State of one rendering: the limits, the line for messages, and the objects that live until its end.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "template/value/value.h"
#include "zt/base/error.h"

namespace zt::data::jinja {

constexpr int64_t kMaxSteps = 1'000'000;
constexpr size_t kMaxLength = 1 << 20;  // characters of a string, items of a list, bytes of the output
constexpr int kMaxDepth = 64;           // nesting of constructs, of calls and of lists
constexpr int kMaxEvaluationDepth = 1000;
constexpr size_t kCharactersPerStep = 64;

// Not thread-safe: each rendering has one.
class TemplateRun {
 public:
  using Clock = std::function<std::time_t()>;
  TemplateRun(const std::string& name, const Clock& clock) : name_(name), clock_(clock) {}
  TemplateRun(const TemplateRun&) = delete;
  TemplateRun& operator=(const TemplateRun&) = delete;

  // Throws Fault. The message begins with the name of the template and the current line.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(message(format, std::forward<Args>(args)...));
  }
  // Throws Fault with the message of the undefined value. Returns if the value is something else.
  void refuse_undefined(const TemplateValue& value) const;

  void set_line(int line) { line_ = line; }
  int line() const { return line_; }
  std::time_t now() const { return clock_(); }

  // Counts steps. Throws Fault beyond kMaxSteps.
  void charge(size_t steps) {
    steps_ += static_cast<int64_t>(steps);
    if (steps_ > kMaxSteps) fail_steps();
  }
  // Counts the steps of work on so many characters.
  void charge_text(size_t characters) { charge(characters / kCharactersPerStep); }
  // Throws Fault if a string or list would be longer than kMaxLength.
  void check_length(size_t length) const;

  // Each makes a value. They check and charge its size. Throw: Fault.
  TemplateValue text(MarkedText text, bool is_markup = false);
  TemplateValue ascii(std::string_view text) { return this->text(from_ascii(text)); }
  TemplateValue list(std::vector<TemplateValue> items, bool is_tuple = false);
  TemplateValue tuple(std::vector<TemplateValue> items) { return list(std::move(items), true); }
  TemplateValue group(const TemplateValue& key, TemplateValue items);  // an item of the filter `groupby`
  TemplateValue dict(TemplateDict dict);
  TemplateValue undefined(std::string message);

  // Makes an object or a scope that lives until the end of the rendering.
  template <class T, class... Args>
  T* make(Args&&... args) {
    charge(1);
    auto object = std::make_shared<T>(std::forward<Args>(args)...);
    T* const pointer = object.get();
    objects_.push_back(std::move(object));
    return pointer;
  }

  // Counts a level of recursion while it lives. Throws Fault at the constructor if there are too many.
  class Level {
   public:
    Level(TemplateRun& run, int& depth, int limit) : depth_(depth) {
      if (depth >= limit) run.fail_depth(limit);
      ++depth_;
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };
  [[nodiscard]] Level enter_call() { return Level(*this, call_depth_, kMaxDepth); }
  [[nodiscard]] Level enter_evaluation() { return Level(*this, evaluation_depth_, kMaxEvaluationDepth); }

 private:
  [[noreturn]] void fail_with(const std::string& text) const;
  int depth_above(const std::vector<TemplateValue>& items) const;
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth(int limit) const;

  const std::string& name_;
  const Clock& clock_;
  int line_ = 1;
  int64_t steps_ = 0;
  int call_depth_ = 0, evaluation_depth_ = 0;
  std::vector<std::shared_ptr<void>> objects_;
};

}  // namespace zt::data::jinja
