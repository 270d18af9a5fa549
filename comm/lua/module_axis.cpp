// The Lua type Axis: a thin wrapper of zt::Communicator.
#include "module_axis.h"

#include <chrono>
#include <cmath>

#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/comm/mesh.h"

namespace zt::comm {

namespace {

// The last argument of a collective: {op = "sum", async = false, out_splits = {...}, in_splits = {...}}.
struct CallOptions {
  std::string op = "sum";
  bool is_async = false;
  std::vector<int64_t> out_splits, in_splits;

  ReduceOp reduce() const { return parse_reduce_op(op); }
  Async async() const { return is_async ? Async::yes : Async::no; }
};

enum class CallForm { plain, reducing, splitting };

Schema<CallOptions> call_schema(const char* name, CallForm call) {
  auto schema = Schema<CallOptions>(name).optional("async", &CallOptions::is_async, "return before the work is done");
  if (call == CallForm::reducing) return std::move(schema).optional("op", &CallOptions::op, "sum, max, min or product");
  if (call == CallForm::plain) return schema;
  return std::move(schema)
      .optional("out_splits", &CallOptions::out_splits, "rows of `out` from each rank")
      .optional("in_splits", &CallOptions::in_splits, "rows of `in` for each rank");
}

CallOptions check_options(lua_State* L, int index, const char* name, CallForm call) {
  return call_schema(name, call).parse(lua::is_absent(L, index) ? Value() : lua::check_value(L, index));
}

Communicator& communicator(lua_State* L) {
  return *lua::check<Axis>(L, 1)->communicator;
}

at::Tensor optional_tensor(lua_State* L, int index) {
  return lua::is_absent(L, index) ? at::Tensor() : lua::check_tensor(L, index);
}

int check_rank(lua_State* L, int index) {
  return static_cast<int>(lua::check_integer(L, index));
}

std::vector<at::Tensor> check_tensors(lua_State* L, int index, const char* what) {
  std::vector<at::Tensor> tensors;
  convert(lua::check_value(L, index), what, tensors);
  return tensors;
}

int push_work(lua_State* L, Work work) {
  lua::push(L, std::make_shared<Work>(std::move(work)));
  return 1;
}

// axis:all_reduce(t, options), axis:all_reduce(out, in, options), axis:all_reduce({t, ...}, options)
int all_reduce(lua_State* L) {
  Communicator& comm = communicator(L);
  const int options_at = lua::is_tensor(L, 3) ? 4 : 3;
  const CallOptions options = check_options(L, options_at, "axis:all_reduce", CallForm::reducing);
  if (!lua::is_tensor(L, 2)) {
    return push_work(L, comm.all_reduce(check_tensors(L, 2, "axis:all_reduce argument 1"), options.reduce(), options.async()));
  }
  const at::Tensor out = lua::check_tensor(L, 2);
  return push_work(L, comm.all_reduce(out, options_at == 4 ? lua::check_tensor(L, 3) : out, options.reduce(), options.async()));
}

// axis:reduce_scatter(out, in, options), both tensors or both lists
int reduce_scatter(lua_State* L) {
  Communicator& comm = communicator(L);
  const CallOptions options = check_options(L, 4, "axis:reduce_scatter", CallForm::reducing);
  if (!lua::is_tensor(L, 2)) {
    return push_work(L, comm.reduce_scatter(check_tensors(L, 2, "axis:reduce_scatter out"),
                                            check_tensors(L, 3, "axis:reduce_scatter in"), options.reduce(), options.async()));
  }
  return push_work(L, comm.reduce_scatter(lua::check_tensor(L, 2), lua::check_tensor(L, 3), options.reduce(), options.async()));
}

// axis:all_gather(out, in, options), both tensors or both lists
int all_gather(lua_State* L) {
  Communicator& comm = communicator(L);
  const CallOptions options = check_options(L, 4, "axis:all_gather", CallForm::plain);
  if (!lua::is_tensor(L, 2)) {
    return push_work(L, comm.all_gather(check_tensors(L, 2, "axis:all_gather out"), check_tensors(L, 3, "axis:all_gather in"),
                                        options.async()));
  }
  return push_work(L, comm.all_gather(lua::check_tensor(L, 2), lua::check_tensor(L, 3), options.async()));
}

// axis:broadcast(t, root, options)
int broadcast(lua_State* L) {
  const CallOptions options = check_options(L, 4, "axis:broadcast", CallForm::plain);
  return push_work(L, communicator(L).broadcast(lua::check_tensor(L, 2), check_rank(L, 3), options.async()));
}

// axis:reduce(out, in, root, options); out may be nil where this rank is not the root
int reduce(lua_State* L) {
  const CallOptions options = check_options(L, 5, "axis:reduce", CallForm::reducing);
  return push_work(L, communicator(L).reduce(optional_tensor(L, 2), lua::check_tensor(L, 3), check_rank(L, 4), options.reduce(),
                                             options.async()));
}

// axis:gather(out, in, root, options); out may be nil where this rank is not the root
int gather(lua_State* L) {
  const CallOptions options = check_options(L, 5, "axis:gather", CallForm::plain);
  return push_work(L, communicator(L).gather(optional_tensor(L, 2), lua::check_tensor(L, 3), check_rank(L, 4), options.async()));
}

// axis:scatter(out, in, root, options); in may be nil where this rank is not the root
int scatter(lua_State* L) {
  const CallOptions options = check_options(L, 5, "axis:scatter", CallForm::plain);
  return push_work(L, communicator(L).scatter(lua::check_tensor(L, 2), optional_tensor(L, 3), check_rank(L, 4), options.async()));
}

// axis:all_to_all(out, in, {out_splits =, in_splits =})
int all_to_all(lua_State* L) {
  const CallOptions options = check_options(L, 4, "axis:all_to_all", CallForm::splitting);
  return push_work(L, communicator(L).all_to_all(lua::check_tensor(L, 2), lua::check_tensor(L, 3), options.out_splits,
                                                 options.in_splits, options.async()));
}

int send(lua_State* L) {
  const CallOptions options = check_options(L, 4, "axis:send", CallForm::plain);
  return push_work(L, communicator(L).send(lua::check_tensor(L, 2), check_rank(L, 3), options.async()));
}

int recv(lua_State* L) {
  const CallOptions options = check_options(L, 4, "axis:recv", CallForm::plain);
  return push_work(L, communicator(L).recv(lua::check_tensor(L, 2), check_rank(L, 3), options.async()));
}

// axis:gather_values(value) -> a list of every rank's value, rank 0 first
int gather_values(lua_State* L) {
  Value::List values = lua::check<Axis>(L, 1)->control->all_gather_values(lua::check_value(L, 2));
  lua::push(L, Value(std::move(values)));
  return 1;
}

// axis:allocate({rows, columns}, "float32")
int allocate(lua_State* L) {
  std::vector<int64_t> shape;
  convert(lua::check_value(L, 2), "axis:allocate shape", shape);
  lua::push(L, communicator(L).allocate(shape, lua::is_absent(L, 3) ? at::kFloat : parse_dtype(lua::check_string(L, 3))));
  return 1;
}

// axis:duplicate(name) -> an axis over the same ranks with its own order of operations
int duplicate(lua_State* L) {
  const auto axis = lua::check<Axis>(L, 1);
  auto copy = std::make_shared<Axis>(*axis);
  copy->name = lua::check_string(L, 2);
  copy->communicator = axis->communicator->duplicate(copy->name);
  copy->control = axis->control == axis->communicator ? copy->communicator : axis->control->duplicate(copy->name + "/control");
  lua::push(L, std::move(copy));
  return 1;
}

int set_timeout(lua_State* L) {
  const double seconds = lua::check_number(L, 2);
  // The upper bound keeps nanoseconds within 64 bits.
  if (!(seconds > 0 && seconds <= 1e9)) {
    misuse("the time-out of axis '{}' must be above 0 and at most 1e9 seconds, not {}", communicator(L).name(),
           std::isnan(seconds) ? "nan" : fmt::format("{}", seconds));
  }
  const auto axis = lua::check<Axis>(L, 1);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  for (const auto& each : {axis->communicator, axis->control}) each->set_timeout(timeout);
  return 0;
}

int drain(lua_State* L) {
  const auto axis = lua::check<Axis>(L, 1);
  for (const auto& each : {axis->communicator, axis->control}) each->drain();
  return 0;
}

std::string text_of_axis(const Axis& axis) {
  return fmt::format("axis {} (rank {} of {}, {})", axis.name, axis.coordinate, axis.size, axis.communicator->backend());
}

}  // namespace

void open_axis(lua::Module& module) {
  module.type<Axis>()
      .method<all_reduce>("all_reduce")
      .method<reduce_scatter>("reduce_scatter")
      .method<all_gather>("all_gather")
      .method<broadcast>("broadcast")
      .method<reduce>("reduce")
      .method<gather>("gather")
      .method<scatter>("scatter")
      .method<all_to_all>("all_to_all")
      .method<send>("send")
      .method<recv>("recv")
      .method<[](const Axis& axis) { axis.communicator->barrier(); }>("barrier")
      .method<gather_values>("gather_values")
      .method<allocate>("allocate")
      .method<duplicate>("duplicate")
      .method<set_timeout>("set_timeout")
      .method<drain>("drain")
      .getter<&Axis::name>("name")
      .getter<[](const Axis& axis) { return int64_t{axis.size}; }>("size")
      .getter<[](const Axis& axis) { return int64_t{axis.coordinate}; }>("rank")
      .getter<[](const Axis& axis) { return int64_t{axis.coordinate}; }>("coordinate")
      .getter<[](const Axis& axis) { return axis.communicator->backend(); }>("backend")
      .metamethod<text_of_axis>("__tostring");
}

}  // namespace zt::comm
