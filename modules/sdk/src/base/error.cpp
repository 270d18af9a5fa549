#include "zt/base/error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>
#include <system_error>
#include <vector>

#include "zt/base/machine.h"
#include "zt/base/tensor.h"

namespace zt {

// Defined here and not inline: the type information of the classes is then in this library, the same for all modules.
Error::~Error() = default;
Misuse::~Misuse() = default;
Fault::~Fault() = default;
OutOfMemory::~OutOfMemory() = default;
Aborted::~Aborted() = default;
PeerFailed::~PeerFailed() = default;

namespace {

constexpr std::string_view kRefused = "can't allocate memory: you tried to allocate ";

// "there is no memory for 4 GiB; 1.2 GiB of 23.4 GiB are free on this machine"
std::string no_memory_text(const std::string& what) {
  const std::string left = machine_memory().text();
  return fmt::format("there is no memory{}{}{}", what, left.empty() ? "" : "; ", left);
}

// Returns LibTorch's text. For memory that the system refused, says so in plain words. Of an operator that a device does not
// have, leaves out the list of all devices and their source files.
std::string describe_torch(const std::string& text) {
  if (const size_t at = text.find(kRefused); at != std::string::npos)
    return no_memory_text(" for " + human_bytes(std::atoll(text.c_str() + at + kRefused.size())));
  if (text.starts_with("Could not run '")) return text.substr(0, text.find(" This could be because"));
  return text;
}

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

// Returns the edit distance of `name`, which has `parts` parts between dots, to the nearest run of as many parts of `candidate`.
size_t distance_to_part(std::string_view name, size_t parts, std::string_view candidate) {
  std::vector<size_t> begins{0};
  for (size_t i = 0; i < candidate.size(); ++i) {
    if (candidate[i] == '.') begins.push_back(i + 1);
  }
  begins.push_back(candidate.size() + 1);
  size_t best = edit_distance(name, candidate);
  for (size_t i = 0; i + parts < begins.size(); ++i)
    best = std::min(best, edit_distance(name, candidate.substr(begins[i], begins[i + parts] - 1 - begins[i])));
  return best;
}

size_t common_start(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

static std::string describe_in_full(const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) return describe_torch(c10_error->what_without_backtrace());
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system && system->code() == std::errc::resource_unavailable_try_again) {
    return fmt::format(
        "the system refused a new thread ({}): raise the limits of memory and of threads of this process (ulimit -v, "
        "ulimit -u)",
        system->what());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error)) return no_memory_text("");
  return error.what();
}

std::string describe(const std::exception& error) {
  try {
    return describe_in_full(error);
  } catch (const std::bad_alloc&) {  // nor is there memory to say how much is left
    return "there is no memory";
  }
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const OutOfMemory*>(&error) || dynamic_cast<const std::bad_alloc*>(&error)) return true;
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  if (!torch) return false;
  return dynamic_cast<const c10::OutOfMemoryError*>(torch) ||
         std::string_view(torch->what()).find(kRefused) != std::string_view::npos;
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  const auto parts = static_cast<size_t>(std::ranges::count(name, '.')) + 1;
  size_t best_distance = std::max<size_t>(1, name.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = distance_to_part(name, parts, candidate);
    const bool is_closer = distance == best_distance && common_start(name, candidate) > common_start(name, best);
    if (distance < best_distance || (is_closer && !best.empty())) {
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
  constexpr size_t kShown = 40;
  if (candidates.size() > kShown) return fmt::format(": none of the {} names is like it", candidates.size());
  return fmt::format(": known are '{}'", fmt::join(candidates, "', '"));
}

}  // namespace zt
