// Files that are damaged, contradict themselves, or ask for more than is supported.
#include <functional>

#include "data/support/folder.h"
#include "golden_files.h"
#include "small_tokenizer.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns a list. (In braces, a list of pairs would be an object.)
template <class... Values>
nlohmann::json list_of(const Values&... values) {
  nlohmann::json list = nlohmann::json::array();
  (list.push_back(values), ...);
  return list;
}

// Returns the message for the small tokenizer with one value replaced: `path` is a JSON pointer.
std::string message_with(const std::string& path, const nlohmann::json& value) {
  nlohmann::json document = small_document();
  document[nlohmann::json::json_pointer(path)] = value;
  return message_of<Fault>([&] { small_tokenizer(document); });
}

std::string message_of_text(const std::string& text) {
  return message_of<Fault>([&] { parse_huggingface_tokenizer(text, "a.json"); });
}

TEST(TokenizerFaults, OfFilesThatAreNoJson) {
  EXPECT_THAT(message_of_text(""), HasSubstr("'a.json' is not JSON"));
  EXPECT_THAT(message_of_text("{\"model\": "), AllOf(HasSubstr("'a.json' is not JSON"), HasSubstr("column")));
  EXPECT_THAT(message_of_text("{\"a\xFF\": 1}"), HasSubstr("is not JSON"));
  EXPECT_THAT(message_of_text("[1]"), HasSubstr("must be an object, not array"));
  EXPECT_THAT(message_of_text(std::string(100'000, '[')), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(message_of_text("{}"), HasSubstr("the field 'model' is missing"));
  nlohmann::json nested = {{"type", "Lowercase"}};
  for (int i = 0; i < 40; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_THAT(message_with("/normalizer", nested), HasSubstr("nested deeper"));
}

TEST(TokenizerFaults, NameTheComponentThatIsNotSupported) {
  const std::string start = "'small.json', ";
  EXPECT_THAT(message_with("/model/type", "Other"),
              HasSubstr(start + "model: the model 'Other' of tokenizer.json is not supported"));
  EXPECT_THAT(message_with("/normalizer", {{"type", "Other"}}), HasSubstr(start + "normalizer: the normalizer 'Other'"));
  EXPECT_THAT(message_with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Other"}}}}}),
              HasSubstr(start + "pre_tokenizer.pretokenizers[0]: the pre-tokenizer 'Other'"));
  EXPECT_THAT(message_with("/decoder", {{"type", "Other"}}), HasSubstr(start + "decoder: the decoder 'Other'"));
  EXPECT_THAT(message_with("/post_processor", {{"type", "Other"}}),
              HasSubstr(start + "post_processor: the post-processor 'Other'"));
  EXPECT_THAT(message_with("/pre_tokenizer", {{"individual_digits", true}}), HasSubstr("the pre-tokenizer 'without a type'"));
  EXPECT_THAT(message_with("/version", "2.0"), HasSubstr("the version '2.0'"));
  EXPECT_THAT(message_with("/other", 1), HasSubstr("the option 'other' is not supported"));
  EXPECT_THAT(message_with("/model/other", 1), HasSubstr(start + "model: the option 'other'"));
  EXPECT_THAT(message_with("/model/dropout", 0.1), HasSubstr("dropout"));
  EXPECT_THAT(message_with("/normalizer", {{"type", "NFC"}, {"x", 1}}), HasSubstr("the option 'x'"));
}

TEST(TokenizerFaults, OfModels) {
  const auto pieces = list_of(list_of(nlohmann::json("a"), -1.0)), wrong = list_of(list_of(nlohmann::json("a"), "b"));
  EXPECT_THAT(message_with("/model/unk_token", "<unk>"), HasSubstr("model.unk_token: '<unk>' is not in the vocabulary"));
  EXPECT_THAT(message_with("/model/unk_token", 3), HasSubstr("must be a text, not number"));
  EXPECT_THAT(message_with("/model/vocab/a", 3), HasSubstr("have the same id 3"));
  EXPECT_THAT(message_with("/model/vocab/a", -1), HasSubstr("an id must be a whole number"));
  EXPECT_THAT(message_with("/model/vocab/a", 1.5), HasSubstr("not 1.5"));
  EXPECT_THAT(message_with("/model/vocab/a", 4'000'000'000), HasSubstr("not 4000000000"));
  EXPECT_THAT(message_with("/model/vocab", {1, 2}), HasSubstr("must be an object, not array"));
  EXPECT_THAT(message_with("/model/merges", {"a b c"}), HasSubstr("model.merges[0]: a merge must be two tokens"));
  EXPECT_THAT(message_with("/model/merges", {{"a"}}), HasSubstr("a merge must be two tokens"));
  EXPECT_THAT(message_with("/model/merges", {"a \xC3\xA9"}),
              HasSubstr("the token '\xC3\xA9' of a merge is not in the vocabulary"));
  EXPECT_THAT(message_with("/model/merges", {"a b"}), HasSubstr("the token 'ab' of a merge is not in the vocabulary"));
  EXPECT_THAT(message_with("/model", {{"type", "Unigram"}, {"vocab", pieces}, {"unk_id", 1}}), HasSubstr("from 0 to 0, not 1"));
  EXPECT_THAT(message_with("/model", {{"type", "Unigram"}, {"vocab", wrong}}), HasSubstr("a token and its score"));
  EXPECT_THAT(message_with("/model", {{"type", "WordPiece"}, {"vocab", {{"a", 0}}}, {"unk_token", "?"}}),
              HasSubstr("'?' is not in"));
  EXPECT_THAT(message_with("/model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}}), HasSubstr("'unk_token' is missing"));
  EXPECT_THAT(message_with("/model/vocab", nlohmann::json::object()), HasSubstr("has no tokens"));
}

TEST(TokenizerFaults, OfAddedTokens) {
  EXPECT_THAT(message_with("/added_tokens", list_of(small_added(97, "<s>", true))),
              AllOf(HasSubstr("added_tokens[0].id"), HasSubstr("95")));
  EXPECT_THAT(message_with("/added_tokens", list_of(small_added(95, "a", true))), HasSubstr("the same token has the id 65"));
  EXPECT_THAT(message_with("/added_tokens", list_of(small_added(95, std::string(2000, 'a'), true))), HasSubstr("1024 bytes"));
  EXPECT_THAT(message_with("/added_tokens", list_of(nlohmann::json{{"id", 95}})), HasSubstr("the field 'content' is missing"));
  EXPECT_THAT(message_with("/added_tokens", 5), HasSubstr("must be a list"));
}

TEST(TokenizerFaults, OfOptions) {
  const nlohmann::json regex = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a)\\1"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_THAT(message_with("/pre_tokenizer", regex), AllOf(HasSubstr("pre_tokenizer.pattern"), HasSubstr("the escape '\\1'")));
  nlohmann::json behavior = regex;
  behavior["pattern"] = {{"String", "a"}};
  behavior["behavior"] = "Other";
  EXPECT_THAT(message_with("/pre_tokenizer", behavior), HasSubstr("behavior: 'Other' is not supported"));
  EXPECT_THAT(message_with("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}), HasSubstr("from 1 to"));
  EXPECT_THAT(message_with("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}), HasSubstr("one character"));
  const nlohmann::json metaspace = {
      {"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}, {"prepend_scheme", "always"}};
  EXPECT_THAT(message_with("/pre_tokenizer", metaspace), HasSubstr("contradict"));
  EXPECT_THAT(message_with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AA*A"}}), HasSubstr("not base64"));
  EXPECT_THAT(message_with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AA=="}}), HasSubstr("too short"));
  EXPECT_THAT(message_with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/wAAAAAAAAA="}}),
              HasSubstr("its trie has 255"));
  EXPECT_THAT(message_with("/post_processor", {{"type", "BertProcessing"}, {"sep", {"a", 500}}, {"cls", {"b", 1}}}),
              HasSubstr("the id 500 is not in the vocabulary"));
  const nlohmann::json pair = {{"type", "TemplateProcessing"},
                               {"single", {{{"Sequence", {{"id", "B"}, {"type_id", 0}}}}}},
                               {"pair", nlohmann::json::array()},
                               {"special_tokens", nlohmann::json::object()}};
  EXPECT_THAT(message_with("/post_processor", pair), HasSubstr("asks for a second one"));
  const nlohmann::json bert = {{"type", "BertProcessing"}, {"sep", {"a", 5}}, {"cls", {"b", 1}}};
  EXPECT_THAT(message_with("/post_processor", {{"type", "Sequence"}, {"processors", {bert, bert}}}), HasSubstr("more than one"));
}

TEST(TokenizerFaults, OfTexts) {
  const auto tokenizer = small_tokenizer(small_document());
  EXPECT_THAT(message_of<Fault>([&] { encoded(*tokenizer, "ab\xFF"); }), HasSubstr("byte 2 is 0xff"));
  nlohmann::json document = small_document();
  document["model"] = {{"type", "Unigram"}, {"vocab", list_of(list_of(nlohmann::json("a"), -1.0))}, {"unk_id", nullptr}};
  EXPECT_THAT(message_of<Fault>([&] { encoded(*small_tokenizer(document), "ab"); }),
              HasSubstr("cannot encode the character 'b'"));
  document = small_document();
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(?:a|a)*b"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_THAT(message_of<Fault>([&] { encoded(*small_tokenizer(document), std::string(300, 'a') + "c ab"); }),
              HasSubstr("'(?:a|a)*b' fails"));
}

// A file that is cut short anywhere is refused, and one with a changed byte is refused or makes another tokenizer.
TEST(TokenizerFaults, OfDamagedFiles) {
  for (const char* name : {"bert", "t5", "llama3"}) {
    const std::string file = golden_text(std::string(name) + ".json");
    for (size_t size = 0; size + 2 < file.size(); size += file.size() / 50 + 1) {
      EXPECT_THROW(parse_huggingface_tokenizer(file.substr(0, size), name), Fault);
    }
    for (size_t at = 0; at < file.size(); at += file.size() / 300 + 1) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x11);
      try {
        encoded(*parse_huggingface_tokenizer(damaged, name), "The rain in Spain, 123 \xE6\x97\xA5\xE6\x9C\xAC.");
      } catch (const Fault&) {
      }
    }
  }
}

}  // namespace

}  // namespace zt::data
