// Chat templates against what Hugging Face's transformers renders: tests/oracle/make_templates.py.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "template/chat_template.h"
#include "template/kept_json.h"
#include "zt/base/error.h"
#include "zt/base/value.h"

namespace zt::data {

namespace {

constexpr std::time_t kOracleTime = 1753963200;  // NOW of make_templates.py

nlohmann::ordered_json read_golden(const std::string& name) {
  const std::string path = std::string(ZT_SOURCE_DIR) + "/tests/golden/templates/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::ordered_json::parse(file);
}

std::vector<TextRange> ranges_of(const nlohmann::ordered_json& ranges) {
  std::vector<TextRange> result;
  for (const auto& range : ranges) result.push_back({range[0].get<size_t>(), range[1].get<size_t>()});
  return result;
}

Value kept(const nlohmann::ordered_json& json) {
  return Object::of<KeptJson>(std::make_shared<KeptJson>(KeptJson{json}));
}

// Renders the template and compares the result with that of the oracle. Returns whether the oracle has a text.
bool check_case(const std::string& source, const nlohmann::ordered_json& conversation, bool prompt,
                const nlohmann::ordered_json& golden) {
  SCOPED_TRACE(source);
  SCOPED_TRACE(conversation["messages"].dump());
  const bool is_error = golden.contains("error");
  try {
    const auto parsed = parse_chat_template(source, "golden", [] { return kOracleTime; });
    const Value variables = fields_of({conversation["variables"]});
    const auto chat = parsed->render(kept(conversation["messages"]), variables, prompt);
    EXPECT_FALSE(is_error) << "transformers fails by " << golden["error"] << ", and we write: " << chat.text;
    if (!is_error) {
      EXPECT_EQ(chat.text, golden["output"].get<std::string>());
      EXPECT_EQ(chat.answers, ranges_of(golden["answers"]));
    }
  } catch (const Error& error) {
    EXPECT_TRUE(is_error) << error.what();
  }
  return !is_error;
}

// Checks all cases of a file whose templates have the same conversation.
void check_file(const std::string& name, size_t smallest) {
  const auto golden = read_golden(name);
  size_t texts = 0;
  for (const auto& each : golden["cases"])
    if (check_case(each["template"].get<std::string>(), golden["conversation"], golden["prompt"].get<bool>(), each)) ++texts;
  EXPECT_GE(texts, smallest);
}

// strftime_now prints local time; the oracle has that of UTC.
class TemplateGolden : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(TemplateGolden, TemplatesOfModels) {
  const auto golden = read_golden("models");
  size_t texts = 0;
  for (const auto& each : golden["cases"]) {
    const auto source = golden["templates"][each["template"].get<std::string>()].get<std::string>();
    const auto& conversation = golden["conversations"][each["conversation"].get<std::string>()];
    if (check_case(source, conversation, each["prompt"].get<bool>(), each)) ++texts;
  }
  EXPECT_GE(texts, 150);
}

TEST_F(TemplateGolden, EveryConstruct) {
  check_file("constructs", 340);
}

TEST_F(TemplateGolden, RandomTemplates) {
  check_file("random", 200);
}

}  // namespace

}  // namespace zt::data
