// The binding of zt.optim: optimizers and learning rate schedules for zt.trainer.
#include "flat/adagrad.h"
#include "flat/adam.h"
#include "flat/lion.h"
#include "flat/sgd.h"
#include "schedules.h"
#include "tensor/adafactor.h"
#include "tensor/lamb.h"
#include "tensor/muon.h"
#include "zt/lua/state.h"

namespace zt::optim {

namespace {

template <std::shared_ptr<Optimizer> (*make)(const Value&, Isa)>
int new_optimizer(lua_State* L) {
  lua::push(L, make(lua::check_value(L, 1), best_isa()));
  return 1;
}

// schedule:lr(step [, base = 1])
int schedule_lr(lua_State* L) {
  const auto schedule = lua::check<Schedule>(L, 1);
  const double base = lua::is_absent(L, 3) ? 1.0 : lua::check_number(L, 3);
  lua::push(L, schedule->lr(lua::check_integer(L, 2), base));
  return 1;
}

}  // namespace

}  // namespace zt::optim

ZT_LUA_MODULE(optim) {
  using namespace zt::optim;  // NOLINT: only for the names registered here
  using zt::Optimizer, zt::Schedule;
  module.function<new_optimizer<make_adamw>>("adamw");
  module.function<new_optimizer<make_adam>>("adam");
  module.function<new_optimizer<make_sgd>>("sgd");
  module.function<new_optimizer<make_lion>>("lion");
  module.function<new_optimizer<make_adagrad>>("adagrad");
  module.function<new_optimizer<make_muon>>("muon");
  module.function<zt::lua::made<make_lamb>>("lamb");
  module.function<zt::lua::made<make_adafactor>>("adafactor");
  module.function<zt::lua::made<make_constant>>("constant");
  module.function<zt::lua::made<make_warmup_linear>>("warmup_linear");
  module.function<zt::lua::made<make_warmup_cosine>>("warmup_cosine");
  module.function<zt::lua::made<make_one_cycle>>("one_cycle");
  module.function<zt::lua::made<make_lr_range_test>>("lr_range_test");
  module.function<zt::lua::made<make_step_decay>>("step_decay");
  module.type<Optimizer>()
      .getter<&Optimizer::kind>("kind")
      .getter<[](const Optimizer& optimizer) { return optimizer.lr(); }>("lr")
      .metamethod<[](const Optimizer& optimizer) { return "optim." + optimizer.kind(); }>("__tostring");
  module.type<Schedule>()
      .getter<&Schedule::kind>("kind")
      .method<schedule_lr>("lr")
      .metamethod<[](const Schedule& schedule) { return "optim." + schedule.kind(); }>("__tostring");
}
