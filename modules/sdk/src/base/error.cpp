#include "zt/base/error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace zt {

// Defined here and not inline: the type information of the classes is then in this library, the same for all modules.
Error::~Error() = default;
Misuse::~Misuse() = default;
Fault::~Fault() = default;
Aborted::~Aborted() = default;
PeerFailed::~PeerFailed() = default;

std::string describe(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) return c10_error->what_without_backtrace();
  return error.what();
}

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, name.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggest(std::string_view name, std::span<const std::string> candidates) {
  const std::string found = nearest(name, candidates);
  if (!found.empty()) return fmt::format(": did you mean '{}'?", found);
  if (candidates.empty()) return ": there are none";
  constexpr size_t kShown = 24;
  if (candidates.size() > kShown) return fmt::format(", nor anything like it among {} names", candidates.size());
  return fmt::format(": known are '{}'", fmt::join(candidates, "', '"));
}

}  // namespace zt
