#include "compare.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::comm {

void compare_calls(std::span<const Call> calls, const Group& group) {
  const auto votes = [&](const Call& call) { return std::count(calls.begin(), calls.end(), call); };
  if (votes(calls[0]) == static_cast<std::ptrdiff_t>(calls.size())) return;
  // On a tie, max_element returns the call of the lowest rank.
  const auto most =
      std::max_element(calls.begin(), calls.end(), [&](const Call& a, const Call& b) { return votes(a) < votes(b); });
  const auto who = [&](auto at) { return group.rank_name(static_cast<int>(at - calls.begin())); };
  const auto other = std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call != *most; });
  fault("{} called {} where {} called {}: all ranks have to make the same calls in the same order", who(other),
        other->text(group), votes(*most) > 1 ? "the others" : who(most), most->text(group));
}

void compare_message(const Call& sent, const Call& received, const Group& group) {
  if (sent.kind == CallKind::send && sent.count == received.count && sent.dtype == received.dtype) return;
  fault("{} called {} where {} called {}: a send and its recv need the same count and type", group.rank_name(received.peer),
        sent.text(group.rank_name(group.rank)), group.rank_name(group.rank), received.text(group));
}

}  // namespace zt::comm
