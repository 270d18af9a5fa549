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

// Ranks that fail together tell one story.
constexpr int64_t kFreshNs = 2'000'000'000;

enum class Occasion : uint8_t { asked, end };
enum class Print : uint8_t { if_grave, always };

// What is told when, and how long one waits for the file system, and for the rank of this machine that tells already: mpirun
// kills all soon after the first has gone.
struct Telling {
  Occasion occasion;
  Print print;
  std::chrono::milliseconds for_files, for_teller;
};
constexpr Telling kAsked{Occasion::asked, Print::always, 700ms, 0ms}, kStuck{Occasion::end, Print::always, 700ms, 1000ms};
constexpr Telling kFailed{Occasion::end, Print::if_grave, 700ms, 1000ms},
    kToldToEnd{Occasion::end, Print::if_grave, 300ms, 400ms};

// The boxes of this process: several where ranks are threads.
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

// When a rank of this machine did it last; 0: never.
struct Done {
  int64_t told_ns = 0, saved_ns = 0;
};

// While one lives and `is_chosen`, no other rank of this machine tells. Those that come in the meantime are chosen after it, for
// what it has not done, because it was killed or found nothing grave; or not at all when it takes too long.
class Teller {
 public:
  explicit Teller(const Telling& telling) : here_(here_of_[static_cast<size_t>(telling.occasion)]), lock_(mutex_) {
    done_ = here_;
    const std::string session = session_folder();
    if (session.empty()) return;
    const std::string path = fmt::format("{}/ztoolkit-told-{}", session, telling.occasion == Occasion::asked ? "asked" : "end");
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) return;
    is_chosen_ = lock_file(telling.for_teller);
    Done done;
    if (pread(descriptor_, &done, sizeof(done), 0) == sizeof(done)) done_ = done;
  }
  ~Teller() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Teller(const Teller&) = delete;

  bool is_chosen() const { return is_chosen_; }
  // By any rank of this machine, just now.
  bool is_told() const { return is_fresh(done_.told_ns); }
  bool is_saved() const { return is_fresh(done_.saved_ns); }
  void set_told() { note(&Done::told_ns); }
  void set_saved() { note(&Done::saved_ns); }

 private:
  bool lock_file(std::chrono::milliseconds policy) const {
    const auto until = std::chrono::steady_clock::now() + policy;
    while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(10ms);
    }
    return true;
  }
  static bool is_fresh(int64_t ns) { return ns != 0 && now_ns() - ns < kFreshNs; }
  void note(int64_t Done::*what) {
    done_.*what = now_ns();
    here_ = done_;
    if (descriptor_ >= 0 && pwrite(descriptor_, &done_, sizeof(done_), 0) < 0) return;
  }

  inline static std::mutex mutex_;  // the ranks of this process tell one after the other
  inline static std::array<Done, 2> here_of_{};
  Done& here_;
  const std::lock_guard<std::mutex> lock_;
  Done done_;
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
  if (emergency.kind == Emergency::Kind::told_to_end) box.set_end(fmt::format("it was told to end ({})", emergency.reason));
}

std::vector<Flight> read_machine() {
  std::vector<Flight> flights = session_folder().empty() ? std::vector<Flight>() : BlackBox::read_all();
  if (!flights.empty()) return flights;
  for (const auto& box : boxes().all()) flights.push_back(box->read());
  return flights;
}

// Where the record is, or why it is not.
std::string save(const std::string& folder, const std::vector<Flight>& flights) {
  try {
    write_flights(folder + "/flight", flights);
    return fmt::format("the last calls of every rank are in {0}/flight: ztoolkit flight --run {0} --last 5\n", folder);
  } catch (const std::exception& error) {
    return fmt::format("{}\n", describe(error));
  }
}

// The same; empty without a run. On a thread of its own: a file system that is gone hangs whoever writes to it.
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

void tell(const Telling& telling) {
  Teller teller(telling);
  if (!teller.is_chosen() || (teller.is_told() && teller.is_saved())) return;
  std::vector<Flight> flights = read_machine();
  const Verdict verdict = judge(flights);
  const bool is_news = !teller.is_told() && (verdict.is_grave || telling.print == Print::always);
  if (!is_news && teller.is_saved()) return;
  if (is_news) {
    // Before a file system that may be slow.
    fmt::print(stderr, "who waits for whom:\n{}\n", verdict.text());
    teller.set_told();
  }
  const std::string where = save_in_time(std::move(flights), telling.for_files);
  teller.set_saved();
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
  tell(kStuck);
}

void report_flights(const Emergency& emergency) {
  using enum Emergency::Kind;
  for (const auto& box : boxes().all()) note_end(emergency, *box);
  tell(emergency.kind == asked ? kAsked : emergency.kind == told_to_end ? kToldToEnd : kFailed);
}

}  // namespace zt::comm
