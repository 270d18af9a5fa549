#include "shm/team.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/compare.h"
#include "recorder/black_box.h"
#include "recorder/ended.h"
#include "zt/base/error.h"

namespace zt::comm {

namespace {

// Offsets of the parts of a team's memory. Each part starts on a new page.
struct TeamLayout {
  explicit TeamLayout(int size)
      : boards(0),
        lanes(whole_pages(sizeof(Board) * static_cast<size_t>(size))),
        stages(lanes + whole_pages(sizeof(PairLane) * static_cast<size_t>(size) * static_cast<size_t>(size))),
        lane_stages(stages + 2 * kStageBytes * static_cast<size_t>(size)),
        end(lane_stages + 2 * kLaneBytes * static_cast<size_t>(size) * static_cast<size_t>(size)) {}
  size_t boards, lanes, stages, lane_stages, end;
};

int open_process(pid_t process) {
  return process == getpid() ? -1 : static_cast<int>(syscall(SYS_pidfd_open, process, 0));
}

}  // namespace

size_t Team::bytes_for(int size) {
  return TeamLayout(size).end;
}

Team::Team(Group group, std::shared_ptr<SharedMemory> memory, WaitPolicy& policy)
    : group_(std::move(group)), memory_(std::move(memory)) {
  board(rank()).process = getpid();
  processes_.assign(static_cast<size_t>(size()), -1);
  set_wait_policy(policy);
  // When all ranks have entered this barrier, all have written their process ids.
  my_notice().call = {};
  enter();
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) processes_[static_cast<size_t>(r)] = open_process(board(r).process);
  }
}

Team::~Team() {
  for (const int process : processes_) {
    if (process >= 0) close(process);
  }
}

Board& Team::board(int rank) const {
  return reinterpret_cast<Board*>(memory_->data())[rank];
}

PairLane& Team::lane(int from, int to) const {
  return reinterpret_cast<PairLane*>(memory_->data() + TeamLayout(size()).lanes)[from * size() + to];
}

char* Team::stage(int rank, uint32_t chunk) const {
  return memory_->data() + TeamLayout(size()).stages + kStageBytes * (2 * static_cast<size_t>(rank) + chunk % 2);
}

char* Team::lane_stage(int from, int to, uint32_t chunk) const {
  const auto pair = static_cast<size_t>(from * size() + to);
  return memory_->data() + TeamLayout(size()).lane_stages + kLaneBytes * (2 * pair + chunk % 2);
}

void Team::set_wait_policy(WaitPolicy& policy) {
  policy_ = &policy;
  spin_ = spin_for(policy.style());
}

void Team::enter() {
  ++operation_;
  board(rank()).entered.raise(operation_);
  await_all(&Board::entered, operation_);
  check_calls();
}

void Team::leave() {
  board(rank()).left.raise(operation_);
  await_all(&Board::left, operation_);
}

void Team::check_calls() const {
  const Call& mine = notice(rank()).call;
  bool are_alike = true;
  for (int r = 0; r < size(); ++r) are_alike &= notice(r).call == mine;
  if (are_alike) return;
  std::vector<Call> calls;
  for (int r = 0; r < size(); ++r) calls.push_back(notice(r).call);
  compare_calls(calls, group_);
}

void Team::check_alive(int peer, const Signal& signal, uint32_t wanted) const {
  const int process = processes_[static_cast<size_t>(peer)];
  if (process < 0) return;
  pollfd entry{process, POLLIN, 0};
  if (poll(&entry, 1, 0) <= 0 || signal.has_reached(wanted)) return;
  const std::string why = BlackBox::end_of(group_.ranks[static_cast<size_t>(peer)]);
  if (why == kScriptEnded) throw PeersEnded{{peer}};
  if (why.starts_with(kExited)) fault("{} is gone: {}", group_.rank_name(peer), why);
  if (!why.empty()) throw Aborted(fmt::format("{} is gone: {}", group_.rank_name(peer), why));
  fault("the process of {} ({}) is gone and said nothing: it was killed, by hand (kill -9) or because memory ran out",
        group_.rank_name(peer), board(peer).process);
}

void Team::await_peer(Signal& signal, uint32_t wanted, int peer) {
  await(signal, wanted, spin_, [&] {
    bool in_time = true;
    try {
      in_time = policy_->go_on();
    } catch (const PeersEnded&) {
      // In a channel, the record of the peer's last call does not say whether it freed the slot that this rank waits for.
      if (!signal.has_reached(wanted)) throw;
    }
    check_alive(peer, signal, wanted);
    if (!in_time) throw TimedOut{{peer}};
  });
}

void Team::await_all(Signal Board::*signal, uint32_t wanted) {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    Signal& theirs = board(peer).*signal;
    if (theirs.has_reached(wanted)) continue;
    await(theirs, wanted, spin_, [&] {
      const bool in_time = policy_->go_on();
      std::vector<int> late;
      for (int r = 0; r < size(); ++r) {
        if (r == rank() || (board(r).*signal).has_reached(wanted)) continue;
        check_alive(r, board(r).*signal, wanted);
        late.push_back(r);
      }
      if (!late.empty() && !in_time) throw TimedOut{late};
    });
  }
}

}  // namespace zt::comm
