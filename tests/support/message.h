// Checks of error messages.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "zt/base/error.h"

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "the text is: " << (text)

// Expects that the statement throws Misuse and that the message contains `part`.
#define EXPECT_SAYS(part, ...)                                                       \
  do {                                                                               \
    const std::string said = zt::test::message_of<zt::Misuse>([&] { __VA_ARGS__; }); \
    EXPECT_CONTAINS(said, part);                                                     \
  } while (false)

namespace zt::test {

// Returns the message of the Error that `call` throws, or "no error" if it throws none.
template <class Error, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace zt::test
