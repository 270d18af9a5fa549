// Measures the nanoseconds per operator call from Lua and for the same call in C++. The tensors are small, so the cost of the
// call dominates. Every pair compares its two results before it is timed.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "zt/base/error.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"

namespace {

// Holds a Lua state with a = [1, 2, 3, 4], m = a as 2 x 2, and a function `run(n)` that evaluates `expression` n times.
class Script {
 public:
  explicit Script(const std::string& expression) : L_(zt::lua::new_state({}, {})) {
    execute(
        "local zt = require 'zt.core'\n"
        "local a = zt.tensor{1, 2, 3, 4}; local m = a:view(2, 2)\n"
        "local r; function run(n) for _ = 1, n do r = " +
        expression + " end return r end");
  }
  ~Script() { lua_close(L_); }
  Script(const Script&) = delete;

  // Runs n times and returns the last result.
  at::Tensor run(int64_t n) {
    lua_getglobal(L_, "run");
    lua_pushnumber(L_, static_cast<double>(n));
    if (lua_pcall(L_, 1, 1, 0) != 0) throw zt::Error(lua_tostring(L_, -1));
    at::Tensor result = zt::lua::is_tensor(L_, -1) ? zt::lua::check_tensor(L_, -1) : at::Tensor();
    lua_pop(L_, 1);
    return result;
  }

 private:
  void execute(const std::string& code) {
    if (luaL_loadstring(L_, code.c_str()) != 0 || lua_pcall(L_, 0, 0, 0) != 0) throw zt::Error(lua_tostring(L_, -1));
  }
  lua_State* L_;
};

using Native = at::Tensor (*)(const at::Tensor& a, const at::Tensor& m);

at::Tensor sample() {
  return at::arange(1, 5, at::kFloat);
}

void through_lua(benchmark::State& state, const char* expression, Native native) {
  Script script(expression);
  const at::Tensor a = sample();
  if (!at::equal(script.run(1), native(a, a.view({2, 2})))) return state.SkipWithError("Lua and C++ give different results");
  constexpr int64_t kBatch = 1000;  // calls per entry into Lua, so that entering Lua costs little per call
  while (state.KeepRunningBatch(kBatch)) script.run(kBatch);
}

void in_cpp(benchmark::State& state, const char*, Native native) {
  const at::Tensor a = sample(), m = a.view({2, 2});
  for (auto _ : state) benchmark::DoNotOptimize(native(a, m));
}

struct Pair {
  const char* expression;
  Native native;
};

const Pair kPairs[] = {
    {"a:add(a)", [](const at::Tensor& a, const at::Tensor&) { return a.add(a); }},
    {"a + a", [](const at::Tensor& a, const at::Tensor&) { return a + a; }},
    {"a * 2", [](const at::Tensor& a, const at::Tensor&) { return a * 2; }},
    {"m:matmul(m)", [](const at::Tensor&, const at::Tensor& m) { return m.matmul(m); }},
    {"m:sum({dim = {0}, keepdim = true})", [](const at::Tensor&, const at::Tensor& m) { return m.sum({0}, true); }},
    {"m[{0, {0, 1}}]", [](const at::Tensor&, const at::Tensor& m) { return m.select(0, 0).slice(0, 0, 1); }},
    {"m[1]", [](const at::Tensor&, const at::Tensor& m) { return m.select(0, 1); }},
    {"m:view(4)", [](const at::Tensor&, const at::Tensor& m) { return m.view({4}); }},
};

// Calls a method that does no work: measures the cost of the binding alone.
void bridge_alone(benchmark::State& state) {
  Script script("a:numel()");
  constexpr int64_t kBatch = 1000;
  while (state.KeepRunningBatch(kBatch)) script.run(kBatch);
}

void open_state(benchmark::State& state) {
  for (auto _ : state) Script script("a");
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto& [expression, native] : kPairs) {
    benchmark::RegisterBenchmark(fmt::format("lua/{}", expression).c_str(), through_lua, expression, native);
    benchmark::RegisterBenchmark(fmt::format("cpp/{}", expression).c_str(), in_cpp, expression, native);
  }
  benchmark::RegisterBenchmark("lua/a:numel()", bridge_alone);
  benchmark::RegisterBenchmark("a new state with zt.core", open_state);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
