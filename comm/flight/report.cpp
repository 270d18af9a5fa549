#include "flight/report.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "flight/flight_file.h"
#include "flight/verdict.h"
#include "zt/error.h"
#include "zt/trace.h"

namespace zt::comm {

using namespace std::chrono_literals;

namespace {

// Ranks that fail together tell one story.
constexpr int64_t kFreshNs = 2'000'000'000;
// Of the rank that tells it with the file system, and of the others with that rank: mpirun kills all soon after the first has
// gone.
constexpr std::chrono::milliseconds kPatience(1000), kMoment(10);

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

enum class Occasion : uint8_t { asked, end };

// While one lives and `is_chosen`, no other rank of this machine tells: it waits a second for this one, and tells itself if this
// one was killed before it had told.
class Teller {
 public:
  explicit Teller(Occasion occasion) : told_here_(told_ns_[static_cast<size_t>(occasion)]), lock_(mutex_) {
    is_chosen_ = is_old(told_here_);
    const std::string session = session_folder();
    if (session.empty() || !is_chosen_) return;
    const std::string path = fmt::format("{}/ztoolkit-told-{}", session, occasion == Occasion::asked ? "asked" : "end");
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) return;
    int64_t told_ns = 0;
    is_chosen_ = lock_file() && (pread(descriptor_, &told_ns, sizeof(told_ns), 0) != sizeof(told_ns) || is_old(told_ns));
  }
  ~Teller() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Teller(const Teller&) = delete;

  bool is_chosen() const { return is_chosen_; }
  // From now on others have nothing to add.
  void told() const {
    const int64_t now = now_ns();
    told_here_ = now;
    if (descriptor_ >= 0 && pwrite(descriptor_, &now, sizeof(now), 0) < 0) return;
  }

 private:
  bool lock_file() const {
    for (auto waited = 0ms; flock(descriptor_, LOCK_EX | LOCK_NB) != 0; waited += kMoment) {
      if (waited > kPatience) return false;
      std::this_thread::sleep_for(kMoment);
    }
    return true;
  }
  static bool is_old(int64_t told_ns) { return told_ns == 0 || now_ns() - told_ns > kFreshNs; }

  inline static std::mutex mutex_;  // the ranks of this process tell one after the other
  inline static std::array<int64_t, 2> told_ns_{};
  int64_t& told_here_;
  const std::lock_guard<std::mutex> lock_;
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
    return fmt::format("the last calls of every rank are in {0}/flight: ztoolkit run scripts/flight.lua --run {0} --last 5\n",
                       folder);
  } catch (const std::exception& error) {
    return fmt::format("{}\n", describe(error));
  }
}

// The same; empty without a run. On a thread of its own: a file system that is gone hangs whoever writes to it.
std::string save_in_time(std::vector<Flight> flights) {
  const std::string folder = run_folder();
  if (folder.empty()) return "";
  std::promise<std::string> promise;
  auto saved = promise.get_future();
  std::thread([promise = std::move(promise), folder, flights = std::move(flights)]() mutable {
    promise.set_value(save(folder, flights));
  }).detach();
  if (saved.wait_for(kPatience) == std::future_status::ready) return saved.get();
  return fmt::format("the last calls of every rank could not be written to {}/flight within a second\n", folder);
}

enum class Print : uint8_t { if_grave, always };

void tell(Occasion occasion, Print print) {
  const Teller teller(occasion);
  if (!teller.is_chosen()) return;
  std::vector<Flight> flights = read_machine();
  const Verdict verdict = judge(flights);
  const bool is_told = verdict.is_grave || print == Print::always;
  // Before a file system that may be slow.
  if (is_told) fmt::print(stderr, "who waits for whom:\n{}\n", verdict.text());
  const std::string where = save_in_time(std::move(flights));
  if (!is_told) return;
  fmt::print(stderr, "{}", where);
  teller.told();
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

void note_end_at_shutdown(const World& world) {
  static std::once_flag once;
  if (world.launch != Launch::mpi) return;
  std::call_once(once, [&] { at_shutdown([box = black_box(world)] { box->set_end("its script has ended"); }); });
}

void report_stuck() {
  tell(Occasion::end, Print::always);
}

void report_flights(const Emergency& emergency) {
  for (const auto& box : boxes().all()) note_end(emergency, *box);
  const bool is_asked = emergency.kind == Emergency::Kind::asked;
  tell(is_asked ? Occasion::asked : Occasion::end, is_asked ? Print::always : Print::if_grave);
}

}  // namespace zt::comm
