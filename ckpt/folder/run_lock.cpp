#include "run_lock.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>

#include "lock_holder.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

constexpr const char* kLockName = "/run.lock";
constexpr int kAttempts = 100;  // how often the file may be removed between opening and locking it

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

  std::jthread heart;

  ~State() {
    heart = {};  // stops and joins it
    if (descriptor >= 0) close(descriptor);
  }

  // Opens the file and locks it. Tries again if the path names another file by then: a release may have removed the opened one.
  void open() {
    for (int i = 0; i < kAttempts; ++i) {
      descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
      if (descriptor < 0) refuse("open", path);
      is_flocked = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
      if (!is_flocked && errno == EWOULDBLOCK) refuse_held(folder, LockHolder::parsed(read_lock(descriptor)));
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
    const std::string text = read_lock(descriptor);
    if (!text.empty()) {
      const auto holder = LockHolder::parsed(text);
      const bool is_visible = holder && holder->is_visible_to(self);
      const bool is_held = is_visible ? holder->is_alive() : !is_sure && age(descriptor, path) < double(kStale.count());
      if (is_held) refuse_held(folder, holder);
    }
    write();
    if (is_sure) return;
    std::this_thread::sleep_for(kSettle);
    if (!is_ours()) refuse_held(folder, LockHolder::parsed(read_lock(path)));
  }

  void write() const {
    const std::string text = self.text();
    const bool is_written = ftruncate(descriptor, 0) == 0 &&
                            pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                            fsync(descriptor) == 0;
    if (!is_written) refuse("write", path);
  }

  bool is_ours() const {
    const auto holder = LockHolder::parsed(read_lock(path));
    return holder && holder->token == self.token;
  }

  void beat(const std::stop_token& stop) const {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any stopped;
    while (!stopped.wait_for(lock, stop, kHeartbeat, [&] { return stop.stop_requested(); })) {
      if (is_ours()) futimens(descriptor, nullptr);
    }
  }
};

RunLock::RunLock(const std::string& folder) : state_(std::make_unique<State>()) {
  state_->folder = folder;
  state_->path = folder + kLockName;
  state_->open();
  state_->take();
  state_->heart = std::jthread([state = state_.get()](const std::stop_token& stop) { state->beat(stop); });
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
  const auto holder = LockHolder::parsed(read_lock(state_->path));
  const std::string who = holder ? fmt::format("process {} on host '{}'", holder->pid, holder->host) : "another process";
  fault(
      "the folder '{}' is no longer held by this run: {} has taken it, or '{}' was removed. This run saves nothing more there; "
      "start it again once the other has ended",
      state_->folder, who, state_->path);
}

std::optional<RunHolder> run_holder(const std::string& folder) {
  const std::string path = folder + kLockName;
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return std::nullopt;
  const auto holder = LockHolder::parsed(read_lock(path));
  if (!holder) return RunHolder{};
  RunHolder found{.host = holder->host, .pid = holder->pid};
  if (holder->is_visible_to(LockHolder::of_this_process())) {
    found.is_alive = holder->is_alive();
  } else {
    found.silent = std::max(0.0, std::difftime(std::time(nullptr), file.st_mtim.tv_sec));
    found.is_alive = found.silent <= double(RunLock::kStale.count());
  }
  return found;
}

}  // namespace zt::ckpt
