#include "schedules.h"

#include <cmath>

#include "arguments.h"
#include "protected_call.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

// A learning rate schedule written in Lua: function(updates) returns the rate after this many updates. Every rank calls it once
// per step.
class LuaSchedule : public Schedule {
 public:
  explicit LuaSchedule(std::shared_ptr<Callable> rate) : rate_(std::move(rate)) {}
  std::string kind() const override { return "function"; }
  bool counts_updates() const override { return true; }

  // Throws Misuse unless the function returns a finite number that is not negative.
  double lr(int64_t updates, double) const override {
    lua_State* L = rate_->begin();
    push(L, updates);
    rate_->call(1, 1);
    const bool is_number = lua_type(L, -1) == LUA_TNUMBER;
    const double rate = lua_tonumber(L, -1);
    const std::string returned = is_number ? message("{}", rate) : type_text(L, -1);
    lua_pop(L, 1);
    if (!is_number || !std::isfinite(rate) || rate < 0) {
      misuse("zt.trainer.schedule: the function returned {} after {} updates: a learning rate is a finite number of at least 0",
             returned, updates);
    }
    return rate;
  }

 private:
  std::shared_ptr<Callable> rate_;
};

}  // namespace

std::shared_ptr<Schedule> parse_schedule(const Value& value, const std::string& option) {
  if (value.is_nil()) return nullptr;
  const auto* object = value.get_if<Object>();
  if (object) {
    if (auto function = object->as<Callable>()) return std::make_shared<LuaSchedule>(std::move(function));
    if (auto schedule = object->as<Schedule>()) return schedule;
  }
  wrong_type(option, "a Schedule such as optim.warmup_cosine{...}, or a function(updates)", value);
}

}  // namespace zt::lua
