// EncodeOptions::contents: special tokens that users wrote are no special tokens.
#include "golden_files.h"
#include "small_tokenizer.h"

namespace zt::data {

namespace {

// Encodes a text in which the users' parts are in square brackets. The brackets are left out.
std::string spelled_chat(const nlohmann::json& document, const std::string& chat) {
  std::string text;
  std::vector<TextRange> contents;
  for (const char letter : chat) {
    if (letter == '[') contents.push_back({text.size(), text.size()});
    else if (letter == ']') contents.back().end = text.size();
    else text += letter;
  }
  return spelled(encoded(*small_tokenizer(document), text, {.specials = Specials::parsed, .contents = contents}), document);
}

nlohmann::json with_tokens(std::vector<nlohmann::json> tokens, nlohmann::json normalizer = nullptr) {
  nlohmann::json document = small_document();
  document["added_tokens"] = std::move(tokens);
  document["normalizer"] = std::move(normalizer);
  return document;
}

TEST(Contents, HoldNoSpecialToken) {
  const auto document = with_tokens({small_added(95, "<s>", true), small_added(96, "<e>", true), small_added(97, "tool", false)});
  EXPECT_EQ(spelled_chat(document, "<s>a<e>"), "{<s>}a{<e>}");
  EXPECT_EQ(spelled_chat(document, "<s>[a<e>b]<e>"), "{<s>}a<e>b{<e>}");
  EXPECT_EQ(spelled_chat(document, "[<s>][<e>]<s>"), "<s><e>{<s>}");
  EXPECT_EQ(spelled_chat(document, "<[s]>"), "<s>") << "a token that is partly the user's";
  EXPECT_EQ(spelled_chat(document, "[<]s>"), "<s>");
  EXPECT_EQ(spelled_chat(document, "<s[>]"), "<s>");
  EXPECT_EQ(spelled_chat(document, "[a tool]tool"), "a {tool}{tool}") << "a token that is not special is recognized anywhere";
  EXPECT_EQ(spelled_chat(document, "[]<s>[]"), "{<s>}");
}

// A special token is recognized beside any text of users.
TEST(Contents, DoNotHideTokensBesideThem) {
  const auto document =
      with_tokens({small_added(95, "<s>", true), small_added(96, "a<s>", true), small_added(97, "<s><x>", true)});
  EXPECT_EQ(spelled_chat(document, "[a]<s>"), "a{<s>}") << "'a<s>' starts in the content";
  EXPECT_EQ(spelled_chat(document, "a<s>"), "{a<s>}");
  EXPECT_EQ(spelled_chat(document, "<s>[<x>]"), "{<s>}<x>") << "the longer '<s><x>' ends in the content";
  EXPECT_EQ(spelled_chat(document, "<[<]s>"), "<<s>");
  EXPECT_EQ(spelled_chat(document, "[<<s]<s>"), "<<s{<s>}");
}

// A special token that is looked for in the normalized text, whose bytes lie elsewhere than those of the original text.
TEST(Contents, AreFollowedThroughNormalizers) {
  const auto document = with_tokens({small_added(95, "<END>", true, true)},
                                    {{"type", "Sequence"},
                                     {"normalizers",
                                      {{{"type", "Prepend"}, {"prepend", "__"}},
                                       {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "yyyy"}},
                                       {{"type", "NFD"}},
                                       {{"type", "StripAccents"}},
                                       {{"type", "Lowercase"}}}}});
  EXPECT_EQ(spelled_chat(document, "x<END>"), "__yyyy<end>") << "the token is normalized as well: '__<end>'";
  const auto plain = with_tokens({small_added(95, "<END>", true, true)},
                                 {{"type", "Sequence"},
                                  {"normalizers",
                                   {{{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "yyyy"}},
                                    {{"type", "NFD"}},
                                    {{"type", "StripAccents"}},
                                    {{"type", "Lowercase"}}}}});
  EXPECT_EQ(spelled_chat(plain, "xx<end>[<END>]<End>"), "yyyyyyyy{<END>}<end>{<END>}");
  EXPECT_EQ(spelled_chat(plain, "[xx\xC3\xA9x<E\xCC\x81ND>]x<END>[x]"), "yyyyyyyyeyyyy<end>yyyy{<END>}yyyy");
  EXPECT_EQ(spelled_chat(plain, "<E[\xCC\x81]ND>"), "<end>") << "a mark of the user lies within the token";
  EXPECT_EQ(spelled_chat(plain, "<\xC3\x89ND>"), "{<END>}");
  EXPECT_EQ(spelled_chat(plain, "<[\xC3\x89]ND>"), "<end>");
}

// A token that a user's mark would change is no token any more.
TEST(Contents, MayChangeATokenByAMark) {
  const auto document = with_tokens({small_added(95, "<s>", true, true)}, {{"type", "NFC"}});
  EXPECT_EQ(spelled_chat(document, "<s>[\xCC\x81]"), "{<s>}") << "an acute does not combine with '>'";
  EXPECT_EQ(spelled_chat(document, "<s>[\xCC\xB8]"), "<s") << "a long solidus does: the model has no token for U+226F";
}

TEST(Specials, AreNotRecognizedUnlessAsked) {
  const auto document = with_tokens({small_added(95, "<s>", true), small_added(96, "tool", false)});
  const auto tokenizer = small_tokenizer(document);
  EXPECT_EQ(spelled(encoded(*tokenizer, "<s>tool"), document), "<s>{tool}");
  EXPECT_EQ(spelled(encoded(*tokenizer, "<s>tool", {.specials = Specials::parsed, .contents = {}}), document), "{<s>}{tool}");
  EXPECT_EQ(spelled(encoded(*tokenizer, "<s>tool", {.specials = Specials::added, .contents = {}}), document), "{<s>}{tool}");
  EXPECT_TRUE(tokenizer->is_special(95));
  EXPECT_FALSE(tokenizer->is_special(96));
  EXPECT_EQ(tokenizer->bytes_of(95), "");
  EXPECT_EQ(tokenizer->bytes_of(96), " tool") << "without a decoder, tokens are joined by spaces";
}

// `tokenizers` drops a token whose white space the token before it has taken.
TEST(AddedTokens, OfWhiteSpaceTakeItOnce) {
  nlohmann::json token = small_added(95, "\n\n", false);
  token["lstrip"] = token["rstrip"] = true;
  const auto document = with_tokens({token});
  EXPECT_EQ(spelled(encoded(*small_tokenizer(document), "e\n\n\n\ns"), document), "e{\n\n}s");
  EXPECT_EQ(spelled(encoded(*small_tokenizer(document), "\n\n \n\n"), document), "{\n\n}");
}

TEST(BytesOf, DependsOnTheDecoder) {
  const auto bytes_of = [](const Tokenizer& tokenizer, const std::string& token) {
    return tokenizer.bytes_of(tokenizer.id_of(token).value());
  };
  const auto gpt2 = golden_tokenizer("gpt2");
  EXPECT_EQ(bytes_of(*gpt2, "\xC4\xA0the"), " the");
  EXPECT_EQ(bytes_of(*gpt2, "\xC3\x83"), "\xC3") << "a byte of a character";
  EXPECT_EQ(bytes_of(*gpt2, "<|endoftext|>"), "");
  const auto llama2 = golden_tokenizer("llama2");
  EXPECT_EQ(bytes_of(*llama2, "<0xF0>"), "\xF0");
  EXPECT_EQ(bytes_of(*llama2, "\xE2\x96\x81"), " ");
  EXPECT_EQ(bytes_of(*llama2, "</s>"), "");
  const auto bert = golden_tokenizer("bert");
  EXPECT_EQ(bytes_of(*bert, "##s"), "s");
  EXPECT_EQ(bytes_of(*bert, "the"), " the");
  const auto t5 = golden_tokenizer("t5");
  EXPECT_EQ(bytes_of(*t5, "\xE2\x96\x81the"), " the");
}

}  // namespace

}  // namespace zt::data
