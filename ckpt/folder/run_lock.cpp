#include "run_lock.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

constexpr const char* kLockName = "/run.lock";
constexpr int kAttempts = 100;  // how often the file may be removed between opening and locking it

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

struct LockHolder {
  std::string host, boot, pids, since, token;
  int64_t pid = 0, start = 0;

  static LockHolder of_this_process() {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    std::array<char, 32> since{};
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::strftime(since.data(), since.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
    std::random_device random;
    return {host.data(),
            first_line("/proc/sys/kernel/random/boot_id"),
            pid_namespace(),
            since.data(),
            fmt::format("{:08x}{:08x}", random(), random()),
            getpid(),
            start_of(getpid()).value_or(0)};
  }

  std::string text() const {
    return nlohmann::json{{"host", host},   {"boot", boot},   {"pid_namespace", pids}, {"pid", pid},
                          {"start", start}, {"since", since}, {"token", token}}
               .dump() +
           "\n";
  }

  // Returns nullopt if the text is not a complete record.
  static std::optional<LockHolder> parsed(const std::string& text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return std::nullopt;
    try {
      return LockHolder{json.at("host"),  json.at("boot"), json.at("pid_namespace"), json.at("since"),
                        json.at("token"), json.at("pid"),  json.at("start")};
    } catch (const nlohmann::json::exception&) {
      return std::nullopt;
    }
  }

  bool is_visible_to(const LockHolder& other) const { return !boot.empty() && boot == other.boot && pids == other.pids; }
  bool is_alive() const {
    if (const auto now = start_of(pid)) return *now == start;
    return kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM;  // /proc may hide the processes of other users
  }
};

namespace {

std::string read_text(int descriptor) {
  std::array<char, 4096> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
}

std::string read_text(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return "";
  std::string text = read_text(descriptor);
  close(descriptor);
  return text;
}

// True if the file system is local: then only processes of this kernel see the file, and flock sees all of them.
bool is_local(int descriptor) {
  constexpr long kXfs = 0x58465342, kZfs = 0x2fc12fc1;
  struct statfs status {};
  if (fstatfs(descriptor, &status) != 0) return false;
  for (const long type :
       {long{EXT4_SUPER_MAGIC}, long{TMPFS_MAGIC}, long{BTRFS_SUPER_MAGIC}, long{OVERLAYFS_SUPER_MAGIC}, kXfs, kZfs}) {
    if (status.f_type == type) return true;
  }
  return false;
}

[[noreturn]] void refuse(const char* doing, const std::string& path) {
  fault("cannot {} '{}', which keeps two runs out of one folder: {}. Check the folder's permissions and its disk", doing, path,
        std::strerror(errno));
}

[[noreturn]] void refuse_held(const std::string& folder, const std::optional<LockHolder>& holder) {
  const std::string who =
      holder ? fmt::format("process {} on host '{}' has held it since {}", holder->pid, holder->host, holder->since)
             : "a process holds it that has not yet written its name";
  fault(
      "the folder '{}' belongs to a run that has not ended: {}. Two runs in one folder would mix metrics and checkpoints. Wait "
      "until that run has ended or stop it (kill -USR2 makes it save first), or choose another name (--name)",
      folder, who);
}

// Returns the seconds since the file's modification time, by the clock of the file system, which may be a server's.
double age(int descriptor, const std::string& path) {
  const std::string probe = fmt::format("{}.{:08x}", path, std::random_device()());
  const int other = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (other < 0) refuse("create", probe);
  struct stat now {
  }, then{};
  const bool is_known = futimens(other, nullptr) == 0 && fstat(other, &now) == 0 && fstat(descriptor, &then) == 0;
  close(other);
  unlink(probe.c_str());
  if (!is_known) refuse("ask for the time of", path);
  return static_cast<double>(now.st_mtim.tv_sec - then.st_mtim.tv_sec);
}

}  // namespace

struct RunLock::State {
  std::string folder, path;
  LockHolder self = LockHolder::of_this_process();
  int descriptor = -1;
  bool is_flocked = false;

  std::mutex mutex;
  std::condition_variable changed;
  bool is_ending = false;
  std::thread heart;

  ~State() {
    if (heart.joinable()) {
      {
        const std::lock_guard lock(mutex);
        is_ending = true;
      }
      changed.notify_all();
      heart.join();
    }
    if (descriptor >= 0) close(descriptor);
  }

  // Opens the file and locks it. Tries again if the path names another file by then: a release may have removed the opened one.
  void open() {
    for (int i = 0; i < kAttempts; ++i) {
      descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
      if (descriptor < 0) refuse("open", path);
      is_flocked = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
      if (!is_flocked && errno == EWOULDBLOCK) refuse_held(folder, LockHolder::parsed(read_text(descriptor)));
      struct stat opened {
      }, named{};
      if (fstat(descriptor, &opened) != 0) refuse("open", path);
      if (!S_ISREG(opened.st_mode)) fault("'{}' is not a regular file: remove it", path);
      if (stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return;
      close(std::exchange(descriptor, -1));
    }
    fault("'{}' is removed again and again while it is locked: something else cleans the folder", path);
  }

  void take() {
    const bool is_sure = is_flocked && is_local(descriptor);
    const std::string text = read_text(descriptor);
    if (!text.empty()) {
      const auto holder = LockHolder::parsed(text);
      const bool is_visible = holder && holder->is_visible_to(self);
      const bool is_held = is_visible ? holder->is_alive() : !is_sure && age(descriptor, path) < double(kStale.count());
      if (is_held) refuse_held(folder, holder);
    }
    write();
    if (is_sure) return;
    std::this_thread::sleep_for(kSettle);
    if (!is_ours()) refuse_held(folder, LockHolder::parsed(read_text(path)));
  }

  void write() const {
    const std::string text = self.text();
    const bool is_written = ftruncate(descriptor, 0) == 0 &&
                            pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                            fsync(descriptor) == 0;
    if (!is_written) refuse("write", path);
  }

  bool is_ours() const {
    const auto holder = LockHolder::parsed(read_text(path));
    return holder && holder->token == self.token;
  }

  void beat() {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kHeartbeat, [&] { return is_ending; })) {
      if (is_ours()) futimens(descriptor, nullptr);
    }
  }
};

RunLock::RunLock(const std::string& folder) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  state_->path = folder + kLockName;
  state_->open();
  state_->take();
  state_->heart = std::thread([state = state_.get()] { state->beat(); });
}

RunLock::~RunLock() {
  release();
}

void RunLock::release() noexcept {
  if (!state_) return;
  if (state_->is_ours()) unlink(state_->path.c_str());  // before flock ends: after that the file may be another run's
  state_.reset();
}

void RunLock::check() const {
  if (!state_) misuse("the run has been finished: its folder is no longer held, and nothing may be saved there by it");
  if (state_->is_ours()) return;
  const auto holder = LockHolder::parsed(read_text(state_->path));
  const std::string who = holder ? fmt::format("process {} on host '{}'", holder->pid, holder->host) : "another process";
  fault(
      "the folder '{}' is no longer held by this run: {} has taken it, or '{}' was removed. This run saves nothing more there; "
      "start it again once the other has ended",
      state_->folder, who, state_->path);
}

}  // namespace zt::ckpt
