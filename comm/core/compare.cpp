#include "compare.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::comm {

void compare_calls(std::span<const Call> calls, const Group& group) {
  const auto votes = [&](const Call& call) { return std::count(calls.begin(), calls.end(), call); };
  if (votes(calls[0]) == static_cast<std::ptrdiff_t>(calls.size())) return;
  // Of equally many the lowest rank's: max_element takes the first.
  const auto most =
      std::max_element(calls.begin(), calls.end(), [&](const Call& a, const Call& b) { return votes(a) < votes(b); });
  const auto text = [&](const Call& call) { return call.text(call.peer < 0 ? "" : group.who(call.peer)); };
  const auto who = [&](auto at) { return group.who(static_cast<int>(at - calls.begin())); };
  const auto other = std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call != *most; });
  fault("{} called {} where {} called {}: all ranks have to make the same calls in the same order", who(other), text(*other),
        votes(*most) > 1 ? "the others" : who(most), text(*most));
}

void compare_message(const Call& sent, const Call& received, const Group& group) {
  if (sent.kind == Kind::send && sent.count == received.count && sent.dtype == received.dtype) return;
  fault("{} called {} where {} called {}: a message is sent and received with one count and type", group.who(received.peer),
        sent.text(group.who(group.rank)), group.who(group.rank), received.text(group.who(received.peer)));
}

}  // namespace zt::comm
