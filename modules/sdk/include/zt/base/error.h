// Errors. A message says what is wrong, why it matters and what to do:
// "cannot split 10 layers over 4 stages evenly (remainder 2): give pipe.split{layers = {3, 3, 2, 2}}".
//
// Two families. A Misuse is the caller's to mend; nothing was changed and the object stays usable.
// A Fault comes from outside (a file, a peer, a device, the clock); the object that reported it is not used again.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

// Another rank failed and this one only goes down with it: the message is not worth printing beside the cause.
class Aborted : public Fault {
 public:
  using Fault::Fault;
  ~Aborted() override;
};

// The value as it is, but NaN without its sign: that depends on the processor and means nothing, so messages print "nan".
template <class T>
decltype(auto) without_nan_sign(T&& value) {
  using Number = std::decay_t<T>;
  if constexpr (std::is_floating_point_v<Number>)
    return std::isnan(value) ? std::numeric_limits<Number>::quiet_NaN() : Number(value);
  else return std::forward<T>(value);
}

// fmt::format for messages: as there, but NaN is "nan".
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

// The text of any exception for a person: c10 errors without their C++ backtrace.
std::string describe(const std::exception& error);

// Calls `run` and returns its result. An error that it throws keeps its family (Misuse, Fault, Error) and gets the text that
// `context()` returns in front, followed by ": ". Aborted passes unchanged.
template <class Context, class Run>
decltype(auto) with_context(Context&& context, Run&& run) {
  const auto text = [&](const std::exception& error) { return fmt::format("{}: {}", context(), describe(error)); };
  try {
    return run();
  } catch (const Aborted&) {
    throw;
  } catch (const Fault& error) {
    throw Fault(text(error));
  } catch (const Misuse& error) {
    throw Misuse(text(error));
  } catch (const std::exception& error) {
    throw Error(text(error));
  }
}

// The candidate with the smallest edit distance to `name`; empty if none is near (more than half the letters differ).
std::string nearest(std::string_view name, std::span<const std::string> candidates);

// ": did you mean 'lr'?" or, with nothing near, ": known are 'a', 'b'". To end a message about an unknown name.
std::string suggest(std::string_view name, std::span<const std::string> candidates);

}  // namespace zt
