#include "zt/base/regex.h"

#include <gtest/gtest.h>

#include "support/message.h"

namespace zt {
namespace {

TEST(Regex, FindsAnywhereInAText) {
  const Regex norms(R"(norm\d\.)", "only");
  EXPECT_TRUE(norms.is_found_in("blocks.3.norm1.weight"));
  EXPECT_FALSE(norms.is_found_in("blocks.3.mlp.weight"));
  const Regex copy = norms;
  EXPECT_TRUE(copy.is_found_in("norm2.bias"));
}

TEST(Regex, ReplacesEveryMatchWithItsGroups) {
  EXPECT_EQ(Regex(R"(h\.(\d+))", "map").replace("h.3/h.10", "blocks.$1"), "blocks.3/blocks.10");
  EXPECT_EQ(Regex("x", "map").replace("abc", "y"), "abc");
}

TEST(Regex, NamesTheOptionOfAnInvalidPattern) {
  EXPECT_SAYS("optim.adamw.groups[1].match: '(' is not a regular expression", Regex("(", "optim.adamw.groups[1].match"));
}

}  // namespace
}  // namespace zt
