// Converts Lua values to zt::Value and back.
#include "zt/base/value.h"

#include <ATen/ops/ones.h>

#include <nlohmann/json.hpp>

#include "script.h"

namespace zt::test {
namespace {

Value seen;
int see(lua_State* L) {
  seen = lua::check_value(L, 1);
  lua::push(L, seen);
  return 1;
}
int make_tensor(lua_State* L) {
  lua::push(L, at::ones({2}));
  return 1;
}

class ValueTest : public Script {
 protected:
  void SetUp() override {
    Script::SetUp();
    set<see>("see");
    set<make_tensor>("make_tensor");
  }
  void TearDown() override {
    seen = {};
    Script::TearDown();
  }
};

TEST_F(ValueTest, RoundTrip) {
  EXPECT_EQ(run(R"(
    local v = see{a = 1, b = {true, 2.5, "x"}, c = {d = -3}, e = {}}
    assert(v.a == 1 and v.b[1] == true and v.b[2] == 2.5 and v.b[3] == "x" and #v.b == 3 and v.c.d == -3)
    assert(type(v.e) == "table" and next(v.e) == nil))"),
            "");
  EXPECT_EQ(seen.to_json().dump(), R"({"a":1,"b":[true,2.5,"x"],"c":{"d":-3},"e":{}})");
}

TEST_F(ValueTest, Large64BitIntegersStayExact) {
  EXPECT_EQ(
      run("assert(see(9007199254740993LL) == 9007199254740993LL); assert(see(-9223372036854775807LL) == -9223372036854775807LL)"),
      "");
  EXPECT_EQ(*seen.get_if<int64_t>(), -9223372036854775807);
  EXPECT_EQ(run("assert(type(see(5LL)) == 'number')"), "");
  EXPECT_EQ(run("see(18446744073709551615ULL)"),
            "test:1: the integer 18446744073709551615ULL is above 2^63 - 1, the largest that tensors hold");
}

TEST_F(ValueTest, TensorsAndFunctionsTravel) {
  EXPECT_EQ(run("local v = see{t = make_tensor(), f = function(x) return x + 1 end}; assert(v.f(2) == 3)"), "");
  EXPECT_NE(seen.get_if<Value::Table>()->at("t").get_if<at::Tensor>(), nullptr);
}

TEST_F(ValueTest, RefusalsNameThePath) {
  EXPECT_EQ(run("local t = {}; t.a = {b = t}; see(t)"), "test:1: argument 1.a.b: the table contains itself");
  EXPECT_EQ(run("see{a = {1, 2, x = 3}}"),
            "test:1: argument 1.a: a table has either the keys 1 to n or names as keys, this one mixes them");
  EXPECT_EQ(run("see{a = {[2.5] = 1}}"),
            "test:1: argument 1.a: the key 2.5 is neither a name nor in a list from 1 to n without holes");
  EXPECT_EQ(run("see{{coroutine.create(print)}}"), "test:1: argument 1[1][1]: a thread cannot be used here");
}

TEST_F(ValueTest, ATableMayOccurTwice) {
  EXPECT_EQ(run("local t = {1}; see{a = t, b = t}"), "");
}

}  // namespace
}  // namespace zt::test
