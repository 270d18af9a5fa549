#include "lock_holder.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "zt/base/error.h"
#include "zt/base/machine.h"

namespace zt::ckpt {

namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the id of this process's pid namespace. Process ids of other namespaces have no meaning here.
std::string pid_namespace() {
  std::array<char, 64> text{};
  const ssize_t size = readlink("/proc/self/ns/pid", text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
}

// Returns a process's start time in clock ticks after the machine's. nullopt: there is no such process, or it is a zombie.
std::optional<int64_t> start_of(int64_t pid) {
  const std::string stat = first_line(("/proc/" + std::to_string(pid) + "/stat").c_str());
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  for (int i = 0; i < 18; ++i) fields >> field;
  int64_t start = 0;
  fields >> start;
  return start;
}

}  // namespace

LockHolder LockHolder::of_this_process() {
  std::array<char, 32> since{};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(since.data(), since.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  std::random_device random;
  return {machine_name(),
          first_line("/proc/sys/kernel/random/boot_id"),
          pid_namespace(),
          since.data(),
          fmt::format("{:08x}{:08x}", random(), random()),
          getpid(),
          start_of(getpid()).value_or(0)};
}

std::string LockHolder::text() const {
  return nlohmann::json{{"host", host},   {"boot", boot},   {"pid_namespace", pids}, {"pid", pid},
                        {"start", start}, {"since", since}, {"token", token}}
             .dump() +
         "\n";
}

std::optional<LockHolder> LockHolder::parsed(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    return LockHolder{json.at("host"),  json.at("boot"), json.at("pid_namespace"), json.at("since"),
                      json.at("token"), json.at("pid"),  json.at("start")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool LockHolder::is_alive() const {
  if (const auto now = start_of(pid)) return *now == start;
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM;  // /proc may hide the processes of other users
}

std::string read_lock(int descriptor) {
  std::array<char, 4096> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
}

std::string read_lock(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return "";
  std::string text = read_lock(descriptor);
  close(descriptor);
  return text;
}

}  // namespace zt::ckpt
