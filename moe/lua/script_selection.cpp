#include "script_selection.h"

#include <ATen/ATen.h>

#include "routing/routes.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

class ScriptSelection final : public Selection {
 public:
  explicit ScriptSelection(std::shared_ptr<lua::Callable> function)
      : function_(std::move(function)), place_(function_->place()) {}

  std::string kind() const override { return "the function at " + place_; }
  at::Tensor select(const Candidates& candidates, Context&) const override {
    const at::Tensor scores = candidates.scores.detach().cpu();
    if (!scores.isfinite().all().item<bool>()) return select_top_k(scores, {candidates.routes});
    return with_context([&] { return fmt::format("in the function `select` at {}", place_); },
                        [&] {
                          const at::Tensor own = scores.view({candidates.samples, candidates.tokens, -1}).clone();
                          const at::Tensor experts = call(own).cpu().contiguous();
                          check_routes(experts, candidates, "the experts that it returns");
                          return experts.view({-1, candidates.routes}).clone();
                        });
  }

 private:
  at::Tensor call(const at::Tensor& scores) const {
    lua_State* L = function_->begin();
    const lua::StackScope scope(L, lua_gettop(L) - 1);
    lua::push(L, scores);
    const lua::NoDefaultRandom no_default_random(L);
    function_->call(1, 2);
    if (!lua_isnil(L, -1))
      misuse("it must return one tensor, got more values: `local _, experts = scores:topk(2)` takes the second");
    if (!lua::is_tensor(L, -2)) misuse("it must return a tensor of experts, got {}", luaL_typename(L, -2));
    return lua::check_tensor(L, -2);
  }

  std::shared_ptr<lua::Callable> function_;
  std::string place_;
};

}  // namespace

std::shared_ptr<Selection> make_script_selection(std::shared_ptr<lua::Callable> function) {
  return std::make_shared<ScriptSelection>(std::move(function));
}

}  // namespace zt::moe
