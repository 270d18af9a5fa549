#include "zt/base/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "zt/base/tensor.h"

namespace zt {

namespace {

// Returns the number after a key in a file of lines "key number", or with an empty key the number that the file begins with; -1
// if there is none ("max").
int64_t number_in(const char* path, const std::string& key = {}) {
  std::ifstream file(path);
  for (std::string word; word != key;) {
    if (!(file >> word)) return -1;
  }
  int64_t number = -1;
  return file >> number ? number : -1;
}

// The files of a control group that hold its limit, what it uses, and how much of that is a cache of files.
struct GroupFiles {
  const char *limit, *used, *details, *cache;
};
constexpr GroupFiles kGroups[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
     "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"},
};

void bound_by_group(MachineMemory& memory, const GroupFiles& files) {
  const int64_t limit = number_in(files.limit), used = number_in(files.used);
  if (limit <= 0 || used < 0 || (memory.whole >= 0 && limit >= memory.whole)) return;
  const int64_t cache = std::max<int64_t>(0, number_in(files.details, files.cache));
  memory.whole = limit;
  memory.free = std::min(memory.free < 0 ? limit : memory.free, std::max<int64_t>(0, limit - used + cache));
}

using Variables = std::map<std::string, std::string, std::less<>>;

// Never destroyed: a thread can ask while the process ends.
const Variables& variables() {
  static const Variables& variables = *[] {
    auto* found = new Variables;
    for (char** entry = environ; entry && *entry; ++entry) {
      const std::string_view text = *entry;
      const size_t equals = text.find('=');
      if (equals != std::string_view::npos) found->emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return found;
  }();
  return variables;
}

// Reads the environment as the library is loaded, before there are threads.
[[maybe_unused]] const Variables& read_at_start = variables();

}  // namespace

std::string MachineMemory::text() const {
  std::string words;
  if (free >= 0 && whole >= 0) words = fmt::format("{} of {} are free on this machine", human_bytes(free), human_bytes(whole));
  if (limit >= 0)
    words += fmt::format("{}this process may use {} more (ulimit -v)", words.empty() ? "" : "; ", human_bytes(limit));
  return words;
}

MachineMemory machine_memory() {
  constexpr int64_t kKilobyte = 1024;
  MachineMemory memory;
  const int64_t total = number_in("/proc/meminfo", "MemTotal:"), available = number_in("/proc/meminfo", "MemAvailable:");
  if (total >= 0) memory.whole = total * kKilobyte;
  if (available >= 0) memory.free = available * kKilobyte;
  for (const GroupFiles& files : kGroups) bound_by_group(memory, files);
  rlimit bound{};
  const int64_t reserved = number_in("/proc/self/status", "VmSize:");
  if (getrlimit(RLIMIT_AS, &bound) == 0 && bound.rlim_cur != RLIM_INFINITY && reserved >= 0)
    memory.limit = std::max<int64_t>(0, static_cast<int64_t>(bound.rlim_cur) - reserved * kKilobyte);
  return memory;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

const char* environment(const char* name) {
  const auto found = variables().find(std::string_view(name));
  return found == variables().end() ? nullptr : found->second.c_str();
}

}  // namespace zt
