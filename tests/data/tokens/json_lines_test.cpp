#include "tokens/json_lines.h"

#include <nlohmann/json.hpp>

#include "data/support/folder.h"
#include "zt/base/error.h"

namespace zt::data {

using testing::HasSubstr;

TEST(JsonLines, ReadsLinesByNumber) {
  const Folder folder;
  for (const std::string end : {"", "\n"}) {
    const JsonLines lines(folder.put("a.jsonl", "{\"a\": 1}\n[2, \"x\"]\r\n\"three\"" + end));
    ASSERT_EQ(lines.count(), 3);
    EXPECT_EQ(lines.read(2).to_json(), "three");
    EXPECT_EQ(lines.read(0).to_json(), nlohmann::json::parse("{\"a\": 1}"));
    EXPECT_EQ(lines.read(1).to_json(), nlohmann::json::parse("[2, \"x\"]"));
  }
  EXPECT_EQ(JsonLines(folder.put("empty.jsonl", "")).count(), 0);
}

TEST(JsonLines, OfAFileOfSeveralParts) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += fmt::format("{{\"number\": {}, \"text\": \"{}\"}}\n", i, std::string(static_cast<size_t>(i % 1500), 'x'));
  ASSERT_GT(text.size(), 2U << 20) << "more than two parts of 1 MiB";
  const JsonLines lines(folder.put("long.jsonl", text));
  ASSERT_EQ(lines.count(), 3000);
  for (const int i : {0, 1, 1499, 1500, 2999, 7}) {
    EXPECT_EQ(lines.read(i).to_json(),
              nlohmann::json({{"number", i}, {"text", std::string(static_cast<size_t>(i % 1500), 'x')}}));
  }
}

TEST(JsonLines, SaysWhichLineIsWrong) {
  const Folder folder;
  const std::string path = folder.put("bad.jsonl", "1\n\n{\"a\": \n");
  const JsonLines lines(path);
  ASSERT_EQ(lines.count(), 3);
  for (const int line : {1, 2}) {
    EXPECT_THAT(message_of<Fault>([&] { lines.read(line); }),
                HasSubstr(fmt::format("line {} of '{}' is not JSON", line + 1, path)));
  }
}

}  // namespace zt::data
