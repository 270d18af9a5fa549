#include "stream/open.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include "data/support/folder.h"
#include "zt/base/error.h"
#include "zt/comm/mesh.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

Value axis_of(int size, int coordinate) {
  auto axis = std::make_shared<Axis>();
  axis->name = "dp";
  axis->size = size;
  axis->coordinate = coordinate;
  return Object::of<Axis>(axis);
}

}  // namespace

TEST(Open, TokensTakeAnAxis) {
  const Folder folder;
  const std::string path = folder.put_tokens("a.npy", counting(1000));
  const Value::Table options{{"path", path}, {"seq", 8}, {"batch", 6}, {"seed", 3}};
  const at::Tensor whole = open_tokens(options)->batch(2).at("tokens");
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < 3; ++rank) {
    auto with_axis = options;
    with_axis["axis"] = axis_of(3, rank);
    parts.push_back(open_tokens(with_axis)->batch(2).at("tokens"));
  }
  EXPECT_TRUE(at::equal(at::cat(parts), whole));
}

TEST(Open, SplitsAreDisjoint) {
  const Folder folder;
  Value::Table options{{"path", folder.put_tokens("a.npy", counting(1000))}, {"seq", 8}, {"batch", 50}, {"validation", 0.2}};
  const int64_t last_trained = open_tokens(options)->batch(0).at("labels").max().item<int64_t>();
  options["split"] = "validation";
  const auto validation = open_tokens(options);
  EXPECT_GE(validation->batch(0).at("tokens").min().item<int64_t>(), 800);
  EXPECT_LT(last_trained, 800);
  EXPECT_EQ(validation->source().samples(), 24);  // 200 tokens in shifted windows: 200 / 8 - 1
}

TEST(Open, DocumentsNeedOneKindOfBorder) {
  const Folder folder;
  Value::Table options{{"path", folder.put_tokens("a.npy", {1, 2, 0, 3, 4, 0})}, {"seq", 4}, {"batch", 1}, {"validation", 0}};
  EXPECT_THAT(message_of<Misuse>([&] { open_documents(options); }), HasSubstr("either separator"));
  options["separator"] = 0;
  EXPECT_EQ(open_documents(options)->source().samples(), 2);
  options["offsets"] = "o.npy";
  EXPECT_THAT(message_of<Misuse>([&] { open_documents(options); }), HasSubstr("either separator"));
}

TEST(Open, DocumentsOfTheSplitsAreDisjoint) {
  const Folder folder;
  Value::Table options{{"path", folder.put_tokens("a.npy", {1, 0, 2, 0, 3, 0, 4, 0})},
                       {"seq", 2},
                       {"batch", 4},
                       {"separator", 0},
                       {"validation", 0.5},
                       {"shuffle", false}};
  EXPECT_EQ(row(open_documents(options)->batch(0).at("tokens").t().contiguous(), 0), (std::vector<int64_t>{1, 2, 1, 2}));
  options["split"] = "validation";
  EXPECT_EQ(row(open_documents(options)->batch(0).at("tokens").t().contiguous(), 0), (std::vector<int64_t>{3, 4, 3, 4}));
}

TEST(Open, OptionsAreChecked) {
  const Folder folder;
  const std::string path = folder.put_tokens("a.npy", counting(100));
  const Value::Table good{{"path", path}, {"seq", 8}, {"batch", 2}};
  const auto refused = [&](const std::string& key, const Value& value) {
    auto options = good;
    options[key] = value;
    return message_of<Misuse>([&] { open_tokens(options); });
  };
  EXPECT_NO_THROW(open_tokens(good));
  EXPECT_THAT(refused("sequence", 8), HasSubstr("unknown option 'sequence'"));
  EXPECT_THAT(refused("seq", 0), HasSubstr("data.tokens.seq must be at least 1"));
  EXPECT_THAT(refused("batch", -2), HasSubstr("data.tokens.batch must be at least 1"));
  EXPECT_THAT(refused("validation", 1.5), HasSubstr("between 0 and 1"));
  EXPECT_THAT(refused("split", "test"), HasSubstr("'train', 'validation'"));
  EXPECT_THAT(refused("pad", 0), HasSubstr("unknown option 'pad'"));
  EXPECT_THAT(refused("micro_batches", 3), HasSubstr("equal micro-batches"));
  EXPECT_THAT(refused("axis", axis_of(4, 1)), HasSubstr("give a multiple of 4"));
  EXPECT_THAT(message_of<Misuse>([] { open_tokens(Value::Table{}); }), HasSubstr("'path' is missing"));
}

// Returns why a stream made by `open` with `options` and `changes` refuses the state of one with `options` alone. Empty: it
// takes the state.
std::string refusal(std::shared_ptr<Stream> (*open)(const Value&), const Value::Table& options, const Value::Table& changes) {
  auto changed = changes;
  changed.insert(options.begin(), options.end());
  try {
    open(changed)->restore(open(options)->state(), Stream::Order::same);
  } catch (const Misuse& error) {
    return error.what();
  }
  return "";
}

TEST(Open, StatesOfAnotherOrderAreRefused) {
  const Folder folder;
  std::vector<int32_t> other = counting(1000);
  std::swap(other[500], other[501]);
  const Value::Table options{{"path", folder.put_tokens("a.npy", counting(1000))}, {"seq", 8}, {"batch", 6}, {"seed", 3}};
  const std::vector<std::pair<Value::Table, std::string>> cases{
      {{{"seed", 4}}, "seed = 3 (this stream: 4)"},
      {{{"seq", 16}}, "seq = 8 (this stream: 16)"},
      {{{"split", "validation"}}, "split = 'train' (this stream: 'validation')"},
      {{{"validation", 0.3}, {"seq", 9}}, "seq = 8 (this stream: 9), validation = 0.05 (this stream: 0.3)"},
      {{{"shuffle", false}, {"seed", Value()}}, "shuffle = true (this stream: false)"},
      {{{"path", folder.put_tokens("b.npy", counting(900))}}, "tokens = '1000 numbers, hash "},
      {{{"path", folder.put_tokens("c.npy", other)}}, "tokens = '1000 numbers, hash "},
  };
  for (const auto& [changes, expected] : cases) EXPECT_THAT(refusal(open_tokens, options, changes), HasSubstr(expected));
  for (const Value::Table& changes :
       {Value::Table{{"batch", 8}}, Value::Table{{"micro_batches", 2}}, Value::Table{{"axis", axis_of(3, 1)}},
        Value::Table{{"path", folder.put_tokens("d.npy", counting(1000), NpyType::u32)}}}) {
    EXPECT_EQ(refusal(open_tokens, options, changes), "");
  }
}

TEST(Open, StatesOfOtherDocumentsAreRefused) {
  const Folder folder;
  const Value::Table options{{"path", folder.put_tokens("a.npy", {1, 0, 2, 0, 3, 0, 4, 0})},
                             {"seq", 2},
                             {"batch", 2},
                             {"separator", 0},
                             {"validation", 0}};
  EXPECT_THAT(refusal(open_documents, options, {{"separator", 2}}), HasSubstr("separator = 0 (this stream: 2)"));
  EXPECT_THAT(refusal(open_documents, options, {{"pack", true}}), HasSubstr("pack = false (this stream: true)"));
  EXPECT_THAT(refusal(open_documents, options, {{"seed", 1}}), HasSubstr("seed = 0 (this stream: 1)"));
  EXPECT_EQ(refusal(open_documents, options, {{"batch", 1}}), "");
  auto tokens = options, offsets = options;
  tokens.erase("separator");
  EXPECT_THAT(message_of<Misuse>([&] { open_tokens(tokens)->restore(open_documents(options)->state(), Stream::Order::same); }),
              HasSubstr("kind = 'data.documents' (this stream: 'data.tokens')"));
  offsets.erase("separator");
  offsets["offsets"] = folder.put_tokens("o.npy", {0, 2, 8});
  EXPECT_THAT(refusal(open_documents, offsets, {{"offsets", folder.put_tokens("p.npy", {0, 4, 8})}}),
              HasSubstr("offsets = '3 numbers, hash "));
}

TEST(Open, AllowTakesOneWord) {
  const Folder folder;
  const Value::Table options{
      {"path", folder.put_tokens("a.npy", counting(100))}, {"seq", 8}, {"batch", 2}, {"allow", "anything"}};
  EXPECT_THAT(message_of<Misuse>([&] { open_tokens(options); }), HasSubstr("data.tokens.allow must be one of 'other_order'"));
}

}  // namespace zt::data
