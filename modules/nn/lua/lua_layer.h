// Layers written in Lua: nn.layer{params = {w = tensor}, forward = function(self, x, ctx) ... end, io = {inputs =, outputs =}}.
// One whose work is shared by the ranks of a mesh axis lists it in `axes`, and cuts parameters along it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/lua/state.h"
#include "zt/model/layer_extras.h"

namespace zt::nn {

struct LuaContext;

// As TokenScope, for a function of a script, which cannot reach a cache.
enum class LuaTokens : uint8_t { separate, all };
constexpr auto words_of(LuaTokens) {
  return std::array{"separate", "all"};
}

struct LuaLayerOptions {
  std::shared_ptr<lua::Callable> forward;
  Value::Table params;  // name -> initial values (a tensor), or a Param of another layer, or {values = tensor, cut = one or a
                        // list of {axis =, dim =, groups = {rows or {size =, unit =}, ...}}}
  std::vector<std::shared_ptr<Axis>> axes;               // along which forward and backward communicate, by ctx
  std::vector<std::shared_ptr<Axis>> tensor_axes;        // those of them whose ranks share the work on the same samples
  std::optional<Value> context;                          // {axis =, layout =, fields =}: it works on some tokens of each sample
  std::map<std::string, std::shared_ptr<Layer>> layers;  // name -> a layer that forward runs: self.NAME:forward(inputs..., ctx)
  Value::Table io;                       // inputs: list of names; outputs: list of names or {name =, differentiable =};
                                         // losses: name -> "token" or "sample"; metrics: list of names
  std::shared_ptr<lua::Callable> count;  // function(batch) -> number of valid tokens, for a loss per token; and optionally the
                                         // number of samples, for one per sample; null means none
  LuaTokens tokens = LuaTokens::all;     // that the outputs of one token depend on, besides those that inner layers read
  std::string kind = "lua";
  Value::Table options;  // what all ranks must have alike besides: it is compared with all that a layer is made from
  std::optional<std::string> defined_at;  // "file:line" for messages; default: where `forward` is defined
};

// Calls forward(self, inputs..., ctx), which returns one tensor per output. `self` is a new table of the parameters' values and
// the inner layers in each call, because a layer keeps no state. ctx is a LuaContext; its dropout is the same on any mesh. Throws
// Misuse if forward draws from the Lua state's random generator. Calls count(batch) with a LuaBatch: batch(name) returns a field
// of a micro-batch, or nil. Threads: only the thread of its lua_State.
class LuaLayer final : public Layer, public LayerExtras {
 public:
  explicit LuaLayer(const LuaLayerOptions& options);

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override;
  Io io() const override { return io_; }
  std::vector<std::string> axes() const override { return axes_; }
  std::vector<std::string> tensor_axes() const override { return tensor_axes_; }
  std::optional<TokenCut> token_cut() const override { return token_cut_; }
  bool needs_whole_samples() const override;
  std::vector<std::string> batch_axes() const override;
  std::vector<std::string> gives_up() const override;
  std::string assumption() const override;
  void check_batch(const BatchField& batch, Mode mode) const override;
  Counts count(const BatchField& batch) const override;
  TokenScope token_scope() const override;
  std::optional<KvShape> kv_shape(const Coord& coord) const override;
  std::string kind() const override { return kind_; }
  void drop_garbage() override;
  // A metric is a sum and a count; the result of a step shows their quotient.
  Stats report(const Stats& sums) const override;

 private:
  // Takes the cut of tokens that `of` states. `cutter`: what stated the one that is known. Throws Misuse if they differ.
  void take_token_cut(const std::optional<TokenCut>& cut, const std::string& of, std::string& cutter);
  void fill_self(lua_State* L, int self, const std::shared_ptr<LuaContext>& context) const;
  void end_self(lua_State* L, int self) const;
  Counts inner_count(const BatchField& batch) const;
  void call(lua::Callable& function, int arguments, int results) const;
  at::Device device_of(at::TensorList in, Context& context) const;
  at::Tensor result(lua_State* L, int index, const Output& output) const;

  std::shared_ptr<lua::Callable> forward_, count_;
  std::vector<std::pair<std::string, std::shared_ptr<Param>>> params_;
  std::vector<std::pair<std::string, std::shared_ptr<Layer>>> layers_;
  Io io_;
  std::vector<std::string> axes_, tensor_axes_;           // of several ranks
  std::set<std::string> named_axes_;                      // that the options name, also of one rank
  std::optional<std::vector<std::string>> token_fields_;  // of the option `context`, also for an axis of one rank
  std::optional<TokenCut> token_cut_;
  LuaTokens tokens_;
  std::string kind_, defined_at_;
  bool has_garbage_ = true;  // something may have run since the last collection
};

std::shared_ptr<Layer> make_lua_layer(const Value& options);

}  // namespace zt::nn
