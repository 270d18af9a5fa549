#include "zt/io/hash.h"

#include <gtest/gtest.h>

#include "content.h"

namespace zt::io {

namespace {

TEST(Hash, IsThatOfTheXxhashLibrary) {
  EXPECT_EQ(xxh3({}), 0x2d06800538d394c2U);  // published for the empty input and seed 0
}

TEST(Hash, DoesNotDependOnTheParts) {
  const Bytes bytes = content(100000);
  for (const size_t part : {size_t{1}, size_t{255}, size_t{4096}, bytes.size()}) {
    Hash hash;
    for (size_t at = 0; at < bytes.size(); at += part) hash.add(std::span(bytes).subspan(at, std::min(part, bytes.size() - at)));
    EXPECT_EQ(hash.value(), xxh3(bytes));
  }
}

TEST(Hash, BlocksCoverAllBytes) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, kChecksumBlock, kChecksumBlock + 1, 3 * kChecksumBlock}) {
    const Bytes bytes(static_cast<size_t>(size));
    int64_t covered = 0;
    size_t next = 2;
    for_each_block(2 * kChecksumBlock, bytes, [&](size_t number, std::span<const std::byte> block) {
      EXPECT_EQ(number, next++);
      covered += static_cast<int64_t>(block.size());
    });
    EXPECT_EQ(covered, size);
    EXPECT_EQ(static_cast<int64_t>(next) - 2, checksum_blocks(size));
  }
}

}  // namespace

}  // namespace zt::io
