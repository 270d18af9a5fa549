// Slices of the part of a unit that a rank owns.
#include "zt/model/home.h"

#include <gtest/gtest.h>

#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

TEST(Slices, CoverAllElementsInOrder) {
  for (const int64_t elements :
       {int64_t{0}, int64_t{1}, int64_t{256}, kSliceAlign, kSliceAlign + 256, 9 * kSliceAlign, 10 * kSliceAlign + 256}) {
    for (int64_t parts = 1; parts < 14; ++parts) {
      int64_t next = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const Slice slice = slice_of(elements, part, parts);
        ASSERT_EQ(slice.first, next) << elements << " " << part << "/" << parts;
        ASSERT_TRUE(slice.first % kSliceAlign == 0 || slice.count == 0);
        next = slice.end();
      }
      ASSERT_EQ(next, elements) << parts;
    }
  }
}

TEST(Slices, AreAsManyAsTheirLengthNeeds) {
  for (int64_t blocks = 0; blocks < 40; ++blocks) {
    for (int64_t longest = 1; longest < 12; ++longest) {
      const int64_t elements = blocks * kSliceAlign - (blocks > 0 ? 256 : 0);
      const int64_t parts = slices_of_at_most(elements, longest * kSliceAlign);
      ASSERT_EQ(parts, std::max<int64_t>(1, (blocks + longest - 1) / longest));
      ASSERT_LE(slice_of(elements, 0, parts).count, longest * kSliceAlign);
      ASSERT_TRUE(elements == 0 || slice_of(elements, parts - 1, parts).count > 0);
    }
  }
  EXPECT_CONTAINS(message_of<Misuse>([] { slices_of_at_most(10, 100); }),
                  "slices of 100 elements: give a positive multiple of 4096");
}

}  // namespace
}  // namespace zt::test
