#include "program/lua_optimizer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "binding_state.h"
#include "box.h"
#include "zt/base/tensor.h"
#include "zt/model/optimizer.h"
#include "zt/model/param_groups.h"

namespace zt::lua {

namespace {

struct LuaOptimizerOptions : CommonOptions {
  std::string name;
  Value::Table states;
  std::shared_ptr<Callable> step;
};

constexpr int64_t kBlock = 1 << 20;  // elements of a call: the gradient's copy and what the function allocates stay in caches

// Segments of one group that lie side by side.
struct SegmentRun {
  const ParamGroup& group;
  std::span<const Segment> segments;
  int64_t begin() const { return segments.front().begin; }
  int64_t end() const { return segments.back().end; }
};

std::vector<SegmentRun> runs_of(std::span<const Segment> segments, const GroupTable& groups) {
  std::vector<SegmentRun> runs;
  for (size_t first = 0, next = 0; first < segments.size(); first = next) {
    for (next = first + 1; next < segments.size(); ++next) {
      if (segments[next].group != segments[first].group || segments[next].begin != segments[next - 1].end) break;
    }
    runs.push_back({groups.at(segments[first].group), segments.subspan(first, next - first)});
  }
  return runs;
}

class LuaOptimizer final : public Optimizer {
 public:
  explicit LuaOptimizer(const LuaOptimizerOptions& options)
      : name_(options.name), lr_(options.lr), groups_("zt.optimizer", options), step_(options.step), place_(step_->place()) {
    for (const auto& [name, like] : options.states) states_.push_back(name);
  }

  std::string kind() const override { return name_; }
  double lr() const override { return lr_; }
  std::vector<std::string> state_names() const override { return states_; }
  int group_of(const ParamInfo& param) const override { return groups_.group_of(param); }
  void check(const ModelInfo& model) const override { groups_.check(model); }

  void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments, const Scalars& scalars) const override {
    const int64_t longest = std::min(kBlock, shard.master.numel());
    const at::Tensor scratch = at::empty({longest}, shard.master.options());
    with_context([&] { return fmt::format("in the step of the optimizer '{}' at {}", name_, place_); },
                 [&] {
                   for (const SegmentRun& run : runs_of(segments, groups_)) {
                     for (int64_t begin = run.begin(); begin < run.end(); begin += kBlock)
                       step_block(shard, grad, {begin, std::min(run.end(), begin + kBlock)}, run, scalars, scratch);
                   }
                 });
  }

 private:
  struct Block {
    int64_t begin, end;
    at::Tensor of(const at::Tensor& shard) const { return shard.narrow(0, begin, end - begin); }
  };

  void step_block(FlatState& shard, const at::Tensor& grad, const Block& block, const SegmentRun& run, const Scalars& scalars,
                  const at::Tensor& scratch) const {
    const at::Tensor p = block.of(shard.master), g = scratch.narrow(0, 0, p.numel());
    g.copy_(block.of(grad)).mul_(scalars.grad_scale);
    call(shard, p, g, block, run, scalars);
    if (!p.sum().isfinite().item<bool>()) refuse_values(p, block, run, shard.model);
    if (shard.copy.defined()) block.of(shard.copy).copy_(p);
  }

  // Calls step(info, p, g, state).
  void call(FlatState& shard, const at::Tensor& p, const at::Tensor& g, const Block& block, const SegmentRun& run,
            const Scalars& scalars) const {
    lua_State* L = step_->begin();
    const int function = lua_gettop(L);
    const TensorScope allocated(binding_state(L).memory);
    int lent = function;  // the last of the tensors that the function gets; others may change their memory later
    const StackScope restored(L, function - 1, [&] {
      for (; lent > function; --lent) expire_shard(L, lent);
    });
    std::vector<at::Tensor> own{p, g};
    for (const std::string& name : states_) own.push_back(block.of(shard.state.at(name)));
    for (const at::Tensor& tensor : own) {
      push(L, tensor.detach());
      ++lent;
    }
    const int first = function + 1;
    lua_pushvalue(L, function);
    push_info(L, block, run, scalars, shard.model);
    lua_pushvalue(L, first);
    lua_pushvalue(L, first + 1);
    lua_createtable(L, 0, static_cast<int>(states_.size()));
    for (size_t i = 0; i < states_.size(); ++i) {
      lua_pushvalue(L, first + 2 + static_cast<int>(i));
      lua_setfield(L, -2, states_[i].c_str());
    }
    const NoDefaultRandom no_default_random(L);
    const int first_result = lua_gettop(L) - 4;
    step_->call(4, LUA_MULTRET);
    for (int index = first_result; index <= lua_gettop(L); ++index) {
      if (!lua_isnil(L, index))
        misuse("it returned a {}: it returns nothing, and changes p and state in place", luaL_typename(L, index));
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (is_view_of(check_tensor(L, first + static_cast<int>(i)), own[i])) continue;
      misuse("it gave {}, which is {}, another shape or memory: change its elements in place, as in p:sub_(change)",
             i == 0   ? "p"
             : i == 1 ? "g"
                      : states_[i - 2],
             describe(own[i]));
    }
  }

  // info: {lr, step, decay, grad_scale, parts = {{name, begin, count, first, is_matrix}}}
  void push_info(lua_State* L, const Block& block, const SegmentRun& run, const Scalars& scalars, const ModelInfo* model) const {
    lua_createtable(L, 0, 5);
    const auto set = [&](const char* name, double value) {
      lua_pushnumber(L, value);
      lua_setfield(L, -2, name);
    };
    set("lr", scalars.lr * run.group.lr_scale);
    set("step", static_cast<double>(scalars.step));
    set("decay", run.group.weight_decay);
    set("grad_scale", scalars.grad_scale);
    lua_newtable(L);
    int count = 0;
    for (const Segment& segment : run.segments) {
      const int64_t begin = std::max(segment.begin, block.begin), end = std::min(segment.end, block.end);
      if (begin >= end || !model) continue;
      const ParamInfo& param = model->params.at(segment.param);
      lua_createtable(L, 0, 5);
      push(L, param.name);
      lua_setfield(L, -2, "name");
      set("begin", static_cast<double>(begin - block.begin));
      set("count", static_cast<double>(end - begin));
      set("first", static_cast<double>(segment.first + begin - segment.begin));
      push(L, param.is_matrix);
      lua_setfield(L, -2, "is_matrix");
      lua_rawseti(L, -2, ++count);
    }
    lua_setfield(L, -2, "parts");
  }

  // Throws Misuse if a parameter is not finite; large ones may only have a sum that is not.
  static void refuse_values(const at::Tensor& p, const Block& block, const SegmentRun& run, const ModelInfo* model) {
    const at::Tensor finite = p.isfinite();
    if (finite.all().item<bool>()) return;
    const int64_t place = finite.logical_not().to(at::kByte).argmax().item<int64_t>(), in_shard = block.begin + place;
    const auto segment = std::ranges::find_if(run.segments, [&](const Segment& each) { return in_shard < each.end; });
    misuse("it made element {} of '{}' {}: does it divide by a number that can be 0?", segment->first + in_shard - segment->begin,
           model ? model->params.at(segment->param).name : "a parameter", p[place].item<double>());
  }

  std::string name_;
  double lr_;
  GroupTable groups_;
  std::vector<std::string> states_;
  std::shared_ptr<Callable> step_;
  std::string place_;
};

std::string check_name(const std::string& name) {
  const auto is_word = [](char each) { return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '_'; };
  if (!name.empty() && std::ranges::all_of(name, is_word)) return {};
  return "must consist of lower-case letters, digits and '_': checkpoints name the optimizer by it";
}

std::string check_states(const Value::Table& states) {
  for (const auto& [name, given] : states) {
    const auto* like = given.get_if<std::string>();
    if (!check_name(name).empty()) return fmt::format("has the name '{}': use lower-case letters, digits and '_'", name);
    if (!like || *like != "like") {
      return fmt::format("has {} = {}: give \"like\", a number per parameter", name,
                         like ? "\"" + *like + "\"" : given.type_name());
    }
  }
  return {};
}

}  // namespace

int make_lua_optimizer(lua_State* L) {
  using Options = LuaOptimizerOptions;
  static const auto schema =
      common_options(Schema<Options>("zt.optimizer"))
          .required("name", &Options::name, "the kind that checkpoints and reports name", Check<std::string>(check_name))
          .required("step", &Options::step, "function(info, p, g, state), which updates p and the tensors of state in place")
          .optional("states", &Options::states, "{name = \"like\"}: tensors of a number per parameter, zeros at the start",
                    Check<Value::Table>(check_states));
  const std::shared_ptr<Optimizer> optimizer =
      schema.make(check_value(L, 1), [](const Options& options) { return std::make_shared<LuaOptimizer>(options); });
  push(L, optimizer);
  return 1;
}

}  // namespace zt::lua
