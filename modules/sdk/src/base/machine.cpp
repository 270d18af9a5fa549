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
int64_t number_in(const std::string& path, const std::string& key = {}) {
  std::ifstream file(path);
  for (std::string word; word != key;) {
    if (!(file >> word)) return -1;
  }
  int64_t number = -1;
  return file >> number ? number : -1;
}

// A version of control groups: the folder of its groups, the files of a group that hold its limit and what it uses, and how much
// of that is a cache of files.
struct GroupVersion {
  const char *folder, *limit, *used, *cache;
};
constexpr GroupVersion kUnified{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
constexpr GroupVersion kOfMemory{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                 "total_inactive_file"};

void bound_by_group(MachineMemory& memory, const GroupVersion& version, const std::string& group) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // version 1 has a large number in place of "max"
  const int64_t limit = number_in(group + version.limit), used = number_in(group + version.used);
  if (limit <= 0 || limit >= kUnlimited || used < 0) return;
  const int64_t cache = std::max<int64_t>(0, number_in(group + "/memory.stat", version.cache));
  const auto bound = [](int64_t& bytes, int64_t most) { bytes = bytes < 0 ? most : std::min(bytes, most); };
  bound(memory.whole, limit);
  bound(memory.free, std::max<int64_t>(0, limit - used + cache));
}

// Bounds the memory by a group ("/system.slice/job") and all above it. The root comes last: in a container it is the container's
// own group, whatever the name. Groups of the machine that a container does not see have no files there.
void bound_by_groups(MachineMemory& memory, const GroupVersion& version, const std::string& root, std::string group) {
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    bound_by_group(memory, version, fmt::format("{}{}{}", root, version.folder, group));
    if (group.empty()) return;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

// Each line of the file is "number:controllers:group"; version 2 names no controllers.
void bound_by_groups(MachineMemory& memory, const std::string& root) {
  std::string unified, of_memory;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") unified = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) of_memory = line.substr(second + 1);
  }
  bound_by_groups(memory, kUnified, root, unified);
  bound_by_groups(memory, kOfMemory, root, of_memory);
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

MachineMemory machine_memory(const std::string& root) {
  constexpr int64_t kKilobyte = 1024;
  MachineMemory memory;
  const int64_t total = number_in(root + "/proc/meminfo", "MemTotal:"),
                available = number_in(root + "/proc/meminfo", "MemAvailable:");
  if (total >= 0) memory.whole = total * kKilobyte;
  if (available >= 0) memory.free = available * kKilobyte;
  bound_by_groups(memory, root);
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
