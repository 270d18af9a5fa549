// Tests the texts of options, by which ranks compare theirs, and options that are words or tables.
#include "zt/base/options.h"

#include <gtest/gtest.h>

namespace zt::test {
namespace {

enum class Shape : uint8_t { round, square };
constexpr auto words_of(Shape) {
  return std::array{"round", "square"};
}

struct Inner {
  double width = 0.5;
  Shape shape = Shape::round;
};
const Schema<Inner>& schema_of(const Inner&) {
  static const auto kSchema =
      Schema<Inner>("test.inner").optional("width", &Inner::width, "width", above(0)).optional("shape", &Inner::shape, "shape");
  return kSchema;
}

struct Outer : MadeFromOptions {
  int64_t count = 0;
  bool flag = true;
  std::string name = "none";
  std::vector<std::string> axes;
  std::optional<int64_t> limit;
  std::optional<Inner> inner;
  Inner always;
  Value any;
};
const Schema<Outer>& schema() {
  static const auto kSchema = Schema<Outer>("test")
                                  .required("count", &Outer::count, "count", at_least(1))
                                  .optional("flag", &Outer::flag, "flag")
                                  .optional("name", &Outer::name, "name")
                                  .optional("axes", &Outer::axes, "axes")
                                  .optional("limit", &Outer::limit, "limit")
                                  .optional("inner", &Outer::inner, "a table")
                                  .optional("always", &Outer::always, "a table")
                                  .optional("any", &Outer::any, "any value")
                                  .checked([](const Outer& o) {
                                    if (o.limit && *o.limit < o.count) misuse("test: limit is below count");
                                  });
  return kSchema;
}

OptionTexts texts_of(const Value::Table& table) {
  return schema().text(schema().parse(table));
}

TEST(OptionTexts, HaveAllOptionsWithDefaults) {
  const OptionTexts expected{
      {"count", "3"}, {"flag", "true"}, {"name", "\"none\""}, {"always.width", "0.5"}, {"always.shape", "\"round\""}};
  EXPECT_EQ(texts_of({{"count", 3}}), expected);
}

TEST(OptionTexts, OfADefaultAreThoseOfAnOptionThatIsLeftOut) {
  EXPECT_EQ(texts_of({{"count", 3}, {"flag", true}, {"name", "none"}, {"always", Value::Table{{"width", 0.5}}}}),
            texts_of({{"count", 3.0}}));
}

TEST(OptionTexts, ShowListsTablesAndAnyValue) {
  const Value::Table inner{{"width", 0.1}, {"shape", "square"}};
  const OptionTexts texts = texts_of({{"count", 3},
                                      {"axes", Value::List{"dp", "ep"}},
                                      {"limit", 7},
                                      {"inner", inner},
                                      {"any", Value::Table{{"x", Value::List{1, "y"}}, {"a.b", 2}, {"none", Value::Table()}}}});
  for (const auto& [name, text] : OptionTexts{{"axes[1]", "\"dp\""},
                                              {"axes[2]", "\"ep\""},
                                              {"limit", "7"},
                                              {"inner.width", "0.1"},
                                              {"inner.shape", "\"square\""},
                                              {"any.x[1]", "1"},
                                              {"any.x[2]", "\"y\""},
                                              {"any[\"a.b\"]", "2"},
                                              {"any.none", "{}"}})
    EXPECT_EQ(texts.at(name), text) << name;
}

TEST(OptionTexts, AreThoseOfTheObjectThatIsMade) {
  const auto made = schema().make(Value::Table{{"count", 5}}, [](const Outer& o) { return std::make_shared<Outer>(o); });
  EXPECT_EQ(made->option_texts, texts_of({{"count", 5}}));
}

std::string complaint_of(const Value::Table& table) {
  try {
    schema().parse(table);
  } catch (const Misuse& error) {
    return error.what();
  }
  return {};
}

TEST(Options, OfWordsAndTablesAreChecked) {
  const auto inner = [](const Value& value) { return Value::Table{{"count", 1}, {"inner", value}}; };
  EXPECT_EQ(complaint_of(inner(Value::Table{{"shape", "oval"}})),
            "test.inner.shape must be one of 'round', 'square', got 'oval'");
  EXPECT_EQ(complaint_of(inner(Value::Table{{"shape", 1}})), "test.inner.shape must be a string, got an integer");
  EXPECT_EQ(complaint_of(inner(3)), "test.inner must be a table of options, got an integer");
  EXPECT_EQ(complaint_of({{"count", 3}, {"limit", 2}}), "test: limit is below count");
  EXPECT_EQ(complaint_of({{"count", 3}, {"limit", 3}}), "");
}

}  // namespace
}  // namespace zt::test
