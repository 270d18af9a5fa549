#include "report.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "flight_file.h"
#include "verdict.h"
#include "zt/base/error.h"
#include "zt/process/trace.h"

namespace zt::comm {

using namespace std::chrono_literals;

namespace {

// A report this recent is not repeated: ranks that fail together make one report.
constexpr int64_t kFreshNs = 2'000'000'000;

enum class Occasion : uint8_t { asked, end };
enum class Print : uint8_t { if_grave, always };

// When a report is printed, how long to wait for the file system (file_limit), and how long for another rank of this machine that
// is reporting (lock_limit). The limits are short, because mpirun kills all ranks soon after the first one has exited.
struct ReportPolicy {
  Occasion occasion;
  Print print;
  std::chrono::milliseconds file_limit, lock_limit;
};
constexpr ReportPolicy kAsked{Occasion::asked, Print::always, 700ms, 0ms}, kStuck{Occasion::end, Print::always, 700ms, 1000ms};
constexpr ReportPolicy kFailed{Occasion::end, Print::if_grave, 700ms, 1000ms},
    kToldToEnd{Occasion::end, Print::if_grave, 300ms, 400ms};

// The boxes of this process: several if the ranks are threads.
class Boxes {
 public:
  void add(const std::shared_ptr<BlackBox>& box) {
    const std::lock_guard lock(mutex_);
    std::erase_if(boxes_, [](const auto& old) { return old.expired(); });
    boxes_.push_back(box);
  }
  std::vector<std::shared_ptr<BlackBox>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<BlackBox>> living;
    for (const auto& box : boxes_) {
      if (auto alive = box.lock()) living.push_back(std::move(alive));
    }
    return living;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<BlackBox>> boxes_;
};

// Never destroyed: an emergency may come while the process ends.
Boxes& boxes() {
  static auto& boxes = *new Boxes;
  return boxes;
}

// When a rank of this machine last printed and saved a report; 0 means never. Lies in the lock file.
struct LastReport {
  int64_t printed_ns = 0, saved_ns = 0;
};

// Holds the machine-wide report lock. If `is_chosen`, this rank makes the report. Ranks that come in the meantime get the lock
// afterwards and do what is left, if the first rank was killed or found nothing grave. If they wait for longer than lock_limit,
// they are not chosen.
class ReportLock {
 public:
  explicit ReportLock(const ReportPolicy& policy)
      : process_last_(last_of_process_[static_cast<size_t>(policy.occasion)]), lock_(mutex_) {
    last_ = process_last_;
    const std::string session = session_folder();
    if (session.empty()) return;
    const std::string path = fmt::format("{}/ztoolkit-told-{}", session, policy.occasion == Occasion::asked ? "asked" : "end");
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) return;
    is_chosen_ = lock_file(policy.lock_limit);
    LastReport stored;
    if (pread(descriptor_, &stored, sizeof(stored), 0) == sizeof(stored)) last_ = stored;
  }
  ~ReportLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  ReportLock(const ReportLock&) = delete;

  bool is_chosen() const { return is_chosen_; }
  // Whether a rank of this machine has just printed or saved a report.
  bool is_printed() const { return is_fresh(last_.printed_ns); }
  bool is_saved() const { return is_fresh(last_.saved_ns); }
  void set_printed() { note(&LastReport::printed_ns); }
  void set_saved() { note(&LastReport::saved_ns); }

 private:
  bool lock_file(std::chrono::milliseconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(10ms);
    }
    return true;
  }
  static bool is_fresh(int64_t ns) { return ns != 0 && now_ns() - ns < kFreshNs; }
  void note(int64_t LastReport::*what) {
    last_.*what = now_ns();
    process_last_ = last_;
    if (descriptor_ >= 0 && pwrite(descriptor_, &last_, sizeof(last_), 0) < 0) return;
  }

  inline static std::mutex mutex_;  // the ranks of this process report one after the other
  inline static std::array<LastReport, 2> last_of_process_{};
  LastReport& process_last_;
  const std::lock_guard<std::mutex> lock_;
  LastReport last_;
  int descriptor_ = -1;
  bool is_chosen_ = true;
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

void note_end(const Emergency& emergency, BlackBox& box) {
  if (emergency.rank >= 0 && emergency.rank != box.rank()) return;
  if (emergency.kind == Emergency::Kind::failed) box.set_end(fmt::format("its script failed ({})", first_line(emergency.reason)));
  if (emergency.kind == Emergency::Kind::crashed) box.set_end(fmt::format("it crashed ({})", emergency.reason));
  if (emergency.kind == Emergency::Kind::exited) box.set_end(fmt::format("{}, with {} (os.exit)", kExited, emergency.reason));
  if (emergency.kind == Emergency::Kind::told_to_end) box.set_end(fmt::format("it was told to end ({})", emergency.reason));
}

std::vector<Flight> read_machine() {
  std::vector<Flight> flights = session_folder().empty() ? std::vector<Flight>() : BlackBox::read_all();
  if (!flights.empty()) return flights;
  for (const auto& box : boxes().all()) flights.push_back(box->read());
  return flights;
}

// Writes the flights. Returns a line that says where they are, or why they were not written.
std::string save(const std::string& folder, const std::vector<Flight>& flights) {
  try {
    write_flights(folder + "/flight", flights);
    return fmt::format("the last calls of every rank are in {0}/flight: ztoolkit flight {0} --last 5\n", folder);
  } catch (const std::exception& error) {
    return fmt::format("{}\n", describe(error));
  }
}

// As `save`, but waits for at most `limit`, and returns an empty string if no run is open. The writer is a thread of its own,
// because a write to a file system that is gone never returns.
std::string save_in_time(std::vector<Flight> flights, std::chrono::milliseconds limit) {
  const std::string folder = run_folder();
  if (folder.empty()) return "";
  std::promise<std::string> promise;
  auto saved = promise.get_future();
  try {
    std::thread([promise = std::move(promise), folder, flights = std::move(flights)]() mutable {
      promise.set_value(save(folder, flights));
    }).detach();
  } catch (const std::exception& error) {
    return fmt::format("the last calls of every rank are not in {}/flight: no thread to write them: {}\n", folder,
                       describe(error));
  }
  if (saved.wait_for(limit) == std::future_status::ready) return saved.get();
  return fmt::format("the last calls of every rank could not be written to {}/flight within {} ms\n", folder, limit.count());
}

void write_report(const ReportPolicy& policy) {
  ReportLock lock(policy);
  if (!lock.is_chosen() || (lock.is_printed() && lock.is_saved())) return;
  std::vector<Flight> flights = read_machine();
  const Verdict verdict = judge(flights);
  const bool is_news = !lock.is_printed() && (verdict.is_grave || policy.print == Print::always);
  if (!is_news && lock.is_saved()) return;
  if (is_news) {
    // Printed before the files are written, because the file system may be slow.
    fmt::print(stderr, "who waits for whom:\n{}\n", verdict.text());
    lock.set_printed();
  }
  const std::string where = save_in_time(std::move(flights), policy.file_limit);
  lock.set_saved();
  if (is_news) fmt::print(stderr, "{}", where);
}

std::shared_ptr<BlackBox> make_box(const World& world) {
  static std::once_flag once;
  std::call_once(once, [] { at_emergency(report_flights); });
  auto box = BlackBox::create(world);
  boxes().add(box);
  return box;
}

}  // namespace

std::shared_ptr<BlackBox> black_box(const World& world) {
  if (world.threads)
    return world.threads->shared<BlackBox>(fmt::format("comm.flight.{}", world.rank), [&] { return make_box(world); });
  static const std::shared_ptr<BlackBox> box = make_box(world);
  return box;
}

void note_script_end(const World& world) {
  black_box(world)->set_end(kScriptEnded);
}

std::vector<Flight> read_ended(std::span<const int> world_ranks) {
  if (!session_folder().empty()) return BlackBox::read_ended(world_ranks, kScriptEnded);
  std::vector<Flight> flights;
  for (const auto& box : boxes().all()) {
    if (std::ranges::find(world_ranks, box->rank()) != world_ranks.end() && box->end() == kScriptEnded)
      flights.push_back(box->read());
  }
  return flights;
}

void report_stuck() {
  write_report(kStuck);
}

void report_flights(const Emergency& emergency) {
  using enum Emergency::Kind;
  for (const auto& box : boxes().all()) note_end(emergency, *box);
  if (emergency.kind == exited) return;  // the ranks that wait for this one report it
  write_report(emergency.kind == asked ? kAsked : emergency.kind == told_to_end ? kToldToEnd : kFailed);
}

}  // namespace zt::comm
