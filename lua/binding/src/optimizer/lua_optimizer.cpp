#include <ATen/ops/empty.h>

#include <algorithm>

#include "binding_state.h"
#include "box.h"
#include "optimizer/block_loops.h"
#include "optimizer/optimizer_states.h"
#include "program/open.h"
#include "program/script_record.h"
#include "zt/base/tensor.h"
#include "zt/model/optimizer.h"
#include "zt/model/param_groups.h"

namespace zt::lua {

namespace {

struct LuaOptimizerOptions : CommonOptions {
  std::string name, scope = "element";
  Value::Table states;
  std::shared_ptr<Callable> step;
};

constexpr int64_t kBlock = 1 << 19;  // elements of a call: what is read again for it comes from a cache, and calls cost little

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
      : name_(options.name),
        lr_(options.lr),
        groups_("zt.optimizer", options),
        scope_(options.scope == "tensor" ? Scope::tensor : Scope::element),
        shapes_(options.states),
        step_(options.step),
        place_(step_->place()) {
    for (const auto& [name, shape] : shapes_) states_.push_back(name);
  }

  std::string kind() const override { return name_; }
  double lr() const override { return lr_; }
  std::vector<std::string> state_names() const override { return states_; }
  int group_of(const ParamInfo& param) const override { return groups_.group_of(param); }
  void check(const ModelInfo& model) const override { groups_.check(model); }
  Scope scope(const ParamInfo&) const override { return scope_; }

  std::vector<StateInfo> states_of(const ParamInfo& param) const override {
    std::vector<StateInfo> states;
    for (const auto& [name, shape] : shapes_) {
      states.push_back(
          with_context([&] { return fmt::format("zt.optimizer.states.{} for '{}' at {}", name, param.name, place_); },
                       [&] { return state_of(name, shape, param.shape); }));
    }
    return states;
  }

  void step_tensor(const OwnedTensor& tensor, const at::Tensor& grad, const Scalars& scalars) const override {
    const ParamInfo& param = tensor.param;
    with_context([&] { return fmt::format("in the step of the optimizer '{}' at {}, for '{}'", name_, place_, param.name); },
                 [&] {
                   std::vector<at::Tensor> own{tensor.values.detach(), grad.detach()};
                   for (const std::string& name : states_) own.push_back(tensor.state.at(name).detach());
                   call(own, [&](lua_State* L) { push_info(L, groups_.at(tensor.group), param, scalars); });
                   if (seems_finite(tensor.values)) return;
                   const at::Tensor finite = tensor.values.isfinite().view({-1});
                   if (!finite.all().item<bool>())
                     refuse_value(tensor.values.view({-1}), first_of(finite.logical_not()), 0, param.name);
                 });
  }

  void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments, const Scalars& scalars) const override {
    const int64_t longest = std::min(kBlock, shard.master.numel());
    if (!scratch_.defined() || scratch_.numel() < longest || !scratch_.options().type_equal(shard.master.options()))
      scratch_ = at::empty({longest}, shard.master.options());
    with_context([&] { return fmt::format("in the step of the optimizer '{}' at {}", name_, place_); },
                 [&] {
                   for (const SegmentRun& run : runs_of(segments, groups_)) {
                     for (int64_t begin = run.begin(); begin < run.end(); begin += kBlock)
                       step_block(shard, grad, {begin, std::min(run.end(), begin + kBlock)}, run, scalars);
                   }
                 });
  }

 private:
  struct Block {
    int64_t begin, end;
    at::Tensor of(const at::Tensor& shard) const { return shard.narrow(0, begin, end - begin); }
  };

  void step_block(FlatState& shard, const at::Tensor& grad, const Block& block, const SegmentRun& run,
                  const Scalars& scalars) const {
    std::vector<at::Tensor> own;
    {
      const at::AutoDispatchBelowADInplaceOrView no_tracking;  // nothing asks how these views came about, and it costs time
      own = {block.of(shard.master), scratch_.narrow(0, 0, block.end - block.begin)};
      for (const std::string& name : states_) own.push_back(block.of(shard.state.at(name)));
      scale_into(own[1], block.of(grad), scalars.grad_scale);
    }
    const at::Tensor& p = own[0];
    call(own, [&](lua_State* L) { push_info(L, block, run, scalars, shard.model); });
    if (!seems_finite(p)) refuse_values(p, block, run, shard.model);
    if (shard.copy.defined()) block.of(shard.copy).copy_(p);
  }

  // Calls step(info, p, g, state). `own`: p, g and the states.
  void call(const std::vector<at::Tensor>& own, const std::function<void(lua_State*)>& push_info) const {
    lua_State* L = step_->begin();
    const int function = lua_gettop(L);
    const TensorScope allocated(binding_state(L).memory);
    int lent = function;  // the last of the tensors that the function gets; others may change their memory later
    const StackScope restored(L, function - 1, [&] {
      for (; lent > function; --lent) expire_shard(L, lent);
    });
    for (const at::Tensor& tensor : own) {
      push(L, tensor.variable_data());
      ++lent;
    }
    const int first = function + 1;
    lua_createtable(L, 0, static_cast<int>(states_.size()));
    const int state = lua_gettop(L);
    for (size_t i = 0; i < states_.size(); ++i) {
      lua_pushvalue(L, first + 2 + static_cast<int>(i));
      lua_setfield(L, -2, states_[i].c_str());
    }
    refuse_unknown(L, "state");
    lua_pushvalue(L, function);
    push_info(L);
    refuse_unknown(L, "info");
    lua_pushvalue(L, first);
    lua_pushvalue(L, first + 1);
    lua_pushvalue(L, state);
    const NoDefaultRandom no_default_random(L);
    const int first_result = lua_gettop(L) - 4;
    step_->call(4, LUA_MULTRET);
    for (int index = first_result; index <= lua_gettop(L); ++index) {
      if (!lua_isnil(L, index))
        misuse("it returned a {}: it returns nothing, and changes p and state in place", luaL_typename(L, index));
    }
    check_state(L, state, first + 2);
    for (size_t i = 0; i < own.size(); ++i) {
      if (is_view_of(check_tensor(L, first + static_cast<int>(i)), own[i])) continue;
      misuse("it gave {}, which is {}, another shape or memory: change its elements in place, as in p:sub_(change)",
             i == 0   ? "p"
             : i == 1 ? "g"
                      : states_[i - 2],
             describe(own[i]));
    }
  }

  // `first`: where the first state's tensor is on the stack. A script that assigns a field would train without the state.
  void check_state(lua_State* L, int state, int first) const {
    size_t fields = 0;
    for (lua_pushnil(L); lua_next(L, state); lua_pop(L, 1)) ++fields;
    for (size_t i = 0; i < states_.size(); ++i) {
      lua_getfield(L, state, states_[i].c_str());
      const bool is_own = lua_rawequal(L, -1, first + static_cast<int>(i));
      lua_pop(L, 1);
      if (!is_own)
        misuse("it assigned state.{}, which would have no effect: change it in place, as in state.{}:copy_(values)", states_[i],
               states_[i]);
    }
    if (fields > states_.size()) misuse("it assigned a new field of state, which would not last: name it in zt.optimizer.states");
  }

  static void set(lua_State* L, const char* name, double value) {
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
  }

  // Pushes {lr, step, decay, grad_scale}.
  static void push_numbers(lua_State* L, const ParamGroup& group, const Scalars& scalars) {
    lua_createtable(L, 0, 7);
    set(L, "lr", scalars.lr * group.lr_scale);
    set(L, "step", static_cast<double>(scalars.step));
    set(L, "decay", group.weight_decay);
    set(L, "grad_scale", scalars.grad_scale);
  }

  // Pushes the numbers and {name, shape, is_matrix} of a whole tensor.
  static void push_info(lua_State* L, const ParamGroup& group, const ParamInfo& param, const Scalars& scalars) {
    push_numbers(L, group, scalars);
    push(L, param.name);
    lua_setfield(L, -2, "name");
    push(L, Value(Value::List(param.shape.begin(), param.shape.end())));
    lua_setfield(L, -2, "shape");
    push(L, param.is_matrix);
    lua_setfield(L, -2, "is_matrix");
  }

  // Pushes the numbers and parts = {{name, begin, count, first, is_matrix}}.
  static void push_info(lua_State* L, const Block& block, const SegmentRun& run, const Scalars& scalars, const ModelInfo* model) {
    push_numbers(L, run.group, scalars);
    lua_newtable(L);
    int count = 0;
    for (const Segment& segment : run.segments) {
      const int64_t begin = std::max(segment.begin, block.begin), end = std::min(segment.end, block.end);
      if (begin >= end || !model) continue;
      const ParamInfo& param = model->params.at(segment.param);
      lua_createtable(L, 0, 5);
      push(L, param.name);
      lua_setfield(L, -2, "name");
      set(L, "begin", static_cast<double>(begin - block.begin));
      set(L, "count", static_cast<double>(end - begin));
      set(L, "first", static_cast<double>(segment.first + begin - segment.begin));
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
    const int64_t place = first_of(finite.logical_not()), in_shard = block.begin + place;
    const auto segment = std::ranges::find_if(run.segments, [&](const Segment& each) { return in_shard < each.end; });
    refuse_value(p, place, segment->first + in_shard - segment->begin - place,
                 model ? model->params.at(segment->param).name : "a parameter");
  }

  static int64_t first_of(const at::Tensor& is_wanted) { return is_wanted.to(at::kByte).argmax().item<int64_t>(); }

  // `before`: the elements of the parameter before the first one of `flat`.
  [[noreturn]] static void refuse_value(const at::Tensor& flat, int64_t place, int64_t before, const std::string& name) {
    misuse("it made element {} of '{}' {}: does it divide by a number that can be 0?", before + place, name,
           flat[place].item<double>());
  }

  std::string name_;
  double lr_;
  GroupTable groups_;
  Scope scope_;
  Value::Table shapes_;              // of the states, by name: a word or a function
  std::vector<std::string> states_;  // their names
  std::shared_ptr<Callable> step_;
  std::string place_;
  mutable at::Tensor scratch_;  // the gradient of a block, which the function may change; kept because new memory costs time
};

}  // namespace

int make_lua_optimizer(lua_State* L) {
  using Options = LuaOptimizerOptions;
  static const auto schema =
      common_options(Schema<Options>("zt.optimizer"))
          .required("name", &Options::name, "the kind that checkpoints and reports name", Check<std::string>(check_name))
          .required("step", &Options::step, "function(info, p, g, state), which updates p and the tensors of state in place")
          .optional("scope", &Options::scope, "what step gets: \"element\", flat parts, or \"tensor\", one whole parameter",
                    one_of({"element", "tensor"}))
          .optional("states", &Options::states, "{name = \"like\"}: tensors of a number per parameter, zeros at the start",
                    Check<Value::Table>(check_states));
  const std::shared_ptr<Optimizer> optimizer = schema.make(check_value(L, 1), [](const Options& options) {
    if (options.scope == "element") check_flat(options.states);
    return std::make_shared<LuaOptimizer>(options);
  });
  push(L, optimizer);
  return 1;
}

}  // namespace zt::lua
