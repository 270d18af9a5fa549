#include "sample/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "sample/guesses.h"

namespace zt::infer {
namespace {

using Guesses = std::vector<int32_t>;

TEST(StopTexts, EndBeforeTheFirstStop) {
  StopTexts stops({"###", "\n\n"});
  EXPECT_EQ(stops.add("one # two"), "one # two");
  EXPECT_EQ(stops.add(" ##"), " ");
  EXPECT_EQ(stops.found(), nullptr);
  EXPECT_EQ(stops.add(" x\n"), "## x");
  EXPECT_EQ(stops.add("#"), "\n");
  EXPECT_EQ(stops.add("##y"), "");
  ASSERT_NE(stops.found(), nullptr);
  EXPECT_EQ(*stops.found(), "###");
  EXPECT_EQ(stops.finish(), "");
  EXPECT_EQ(stops.add("more"), "");
}

TEST(StopTexts, GiveBackWhatNothingFollows) {
  StopTexts stops({"<end>"});
  EXPECT_EQ(stops.add("a <en"), "a ");
  EXPECT_EQ(stops.finish(), "<en");
  StopTexts none({});
  EXPECT_EQ(none.add("all"), "all");
}

// In any pieces the text is the same as in one.
TEST(StopTexts, DoNotDependOnThePieces) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t n = random() % 40; n > 0; --n) bytes += static_cast<char>('a' + random() % 2);
    const std::vector<std::string> all{"abab", "bbb", "aabaa"};
    size_t first = std::string::npos, end = std::string::npos;  // of the stop that is complete first
    for (const std::string& stop : all) {
      const size_t at = bytes.find(stop);
      if (at == std::string::npos || at + stop.size() > end || (at + stop.size() == end && at > first)) continue;
      end = at + stop.size();
      first = at;
    }
    StopTexts stops(all);
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t piece = 1 + random() % 7;
      text += stops.add(std::string_view(bytes).substr(at, piece));
      at += piece;
    }
    text += stops.finish();
    EXPECT_EQ(text, bytes.substr(0, first)) << bytes;
  }
}

TEST(CharacterStream, HoldsUntilACharacterIsComplete) {
  CharacterStream stream;
  EXPECT_EQ(stream.add("a\xC3"), "a");
  EXPECT_EQ(stream.add("\xA4\xF0\x9F"), "\xC3\xA4");
  EXPECT_EQ(stream.add("\x98"), "");
  EXPECT_EQ(stream.add("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.add("\xE2\x82"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

// The examples of the Unicode standard, tables 3-8 to 3-11.
TEST(CharacterStream, ReplacesMaximalSubparts) {
  const std::string r = "\xEF\xBF\xBD";
  const auto all = [](std::string_view bytes) {
    CharacterStream stream;
    std::string text = stream.add(bytes);
    return text + stream.finish();
  };
  EXPECT_EQ(all("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(all("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(all("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(all("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(TokenGuesses, ComeFromTheLatestEarlierPlace) {
  TokenGuesses guesses(2, 3);
  EXPECT_EQ(guesses.after(Guesses{5}), Guesses{});
  EXPECT_EQ(guesses.after(Guesses{5, 6, 7, 8, 9}), Guesses{});
  EXPECT_EQ(guesses.after(Guesses{5, 6, 7, 8, 9, 5, 6}), (Guesses{7, 8, 9}));
  EXPECT_EQ(guesses.after(Guesses{5, 6, 7, 8, 9, 5, 6, 1, 5, 6}), (Guesses{1, 5, 6}));
  EXPECT_EQ(guesses.after(Guesses{5, 6, 7, 8, 9, 5, 6, 1, 5, 6, 6}), Guesses{});
  EXPECT_EQ(guesses.after(Guesses{5, 6, 7, 8, 9, 5, 6, 1, 5, 6, 6, 6}), Guesses{6});
}

TEST(TokenGuesses, DoNotDependOnTheCalls) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Guesses tokens;
    TokenGuesses often(2, 4);
    for (int i = 0; i < 60; ++i) {
      tokens.push_back(static_cast<int32_t>(random() % 4));
      const Guesses found = random() % 3 == 0 ? often.after(tokens) : Guesses{-1};
      EXPECT_TRUE(found == Guesses{-1} || found == TokenGuesses(2, 4).after(tokens)) << i;
    }
  }
}

}  // namespace
}  // namespace zt::infer
