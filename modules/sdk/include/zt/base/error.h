// Errors. A message says what is wrong, why it matters and what to do:
// "cannot split 10 layers over 4 stages evenly (remainder 2): give pipe.split{layers = {3, 3, 2, 2}}".
//
// Two families. A Misuse is the caller's mistake: nothing was changed, and the object stays usable.
// A Fault comes from outside (a file, a peer, a device, a timeout): do not use the object that reported it again.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace zt {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

class Misuse : public Error {
 public:
  using Error::Error;
  ~Misuse() override;
};

class Fault : public Error {
 public:
  using Error::Error;
  ~Fault() override;
};

// There was no memory for something.
class OutOfMemory : public Error {
 public:
  using Error::Error;
  ~OutOfMemory() override;
};

// Another rank failed, so this rank ends as well. The other rank prints the cause: this message is not worth printing beside it.
class Aborted : public Fault {
 public:
  using Fault::Fault;
  ~Aborted() override;
};

// Thrown by code that receives a message or numbers of a rank whose step has failed. All ranks learn the cause at the end of the
// step.
class PeerFailed : public Misuse {
 public:
  explicit PeerFailed(const std::string& text = "another rank has failed in this step") : Misuse(text) {}
  ~PeerFailed() override;
};

// Returns the value, and for every NaN the positive one: its sign depends on the processor and means nothing. Messages then
// print "nan".
template <class T>
decltype(auto) without_nan_sign(T&& value) {
  using Number = std::decay_t<T>;
  if constexpr (std::is_floating_point_v<Number>)
    return std::isnan(value) ? std::numeric_limits<Number>::quiet_NaN() : Number(value);
  else return std::forward<T>(value);
}

// Formats a message as fmt::format does, except that every NaN is printed as "nan".
template <class... Args>
std::string message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(fmt::runtime(format), without_nan_sign(std::forward<Args>(args))...);
}

template <class... Args>
[[noreturn]] void misuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Misuse(message(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(message(format, std::forward<Args>(args)...));
}

// Returns the text of any exception for a person: for c10 errors without the C++ backtrace.
std::string describe(const std::exception& error);
// Returns whether the error is an OutOfMemory, or what the allocators of LibTorch and C++ throw instead.
bool is_out_of_memory(const std::exception& error);

// Calls `run` and returns its result. If `run` throws, throws an error of the same family (Misuse, Fault, Error) whose text
// starts with what `context()` returns and ": ". Aborted and PeerFailed pass unchanged.
template <class Context, class Run>
decltype(auto) with_context(Context&& context, Run&& run) {
  const auto text = [&](const std::exception& error) { return fmt::format("{}: {}", context(), describe(error)); };
  try {
    return run();
  } catch (const Aborted&) {
    throw;
  } catch (const PeerFailed&) {
    throw;
  } catch (const Fault& error) {
    throw Fault(text(error));
  } catch (const Misuse& error) {
    throw Misuse(text(error));
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw OutOfMemory(text(error));
    throw Error(text(error));
  }
}

// Returns the candidate with the smallest edit distance to `name`, or an empty string if more than half of the letters differ
// in all of them. Of a candidate with dots, as "head.weight", a part may be near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

// Returns the end of a message about an unknown name: ": did you mean 'lr'?", or ": known are 'a', 'b'" if no candidate is
// near.
std::string suggest(std::string_view name, std::span<const std::string> candidates);

// Returns the names of all elements: `name` is a member or a function of an element.
template <class Range, class Name>
std::vector<std::string> names_of(const Range& range, Name name) {
  std::vector<std::string> names;
  for (const auto& each : range) names.emplace_back(std::invoke(name, each));
  return names;
}

// Returns the name of a type, which is capitalised, after its article: "an Optimizer", "a Layer".
inline std::string with_article(std::string_view name) {
  const bool has_vowel = !name.empty() && std::string_view("AEIO").find(name.front()) != std::string_view::npos;
  return std::string(has_vowel ? "an " : "a ").append(name);
}

// Returns a number and a noun, in the plural unless the number is 1: "1 rank", "4 micro-batches".
inline std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

}  // namespace zt
