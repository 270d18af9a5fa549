#include "player.h"

#include <algorithm>
#include <deque>

#include "play/play_errors.h"
#include "play/play_links.h"
#include "play/transfers.h"
#include "play/work_list.h"

namespace zt {

namespace {

// Plays each rank until it has to wait for another one or for a transfer, which wakes it up. Transfers that share links end one
// by one, each when no rank can move: nothing can begin before it then. So times do not depend on the order in which ranks are
// played.
class Player {
 public:
  Player(const PlayedRanks& played, const ModelInfo& model, const PlayOptions& options)
      : played_(played),
        options_(options),
        groups_(played),
        channels_(played),
        transfers_(played.groups.size() + played.channels.size() + static_cast<size_t>(played.queues)) {
    for (int index = 0; index < static_cast<int>(played.ranks.size()); ++index) {
      RankState& rank = ranks_.emplace_back();
      rank.size = static_cast<int>(played.ranks[index].program->actions.size());
      rank.line.computes.resize(static_cast<size_t>(rank.size));
      rank.line.transfers.resize(static_cast<size_t>(rank.size));
      if (options.waiting == Waiting::when_needed) rank.works = WorkList(*played.ranks[index].program, model, buffers_of(index));
    }
  }

  PlayResult run() {
    std::deque<int> moving;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) moving.push_back(rank);
    while (errors_.empty()) {
      moving.insert(moving.end(), woken_.begin(), woken_.end());
      woken_.clear();
      if (moving.empty() && !transfers_.finish_next()) break;
      if (moving.empty()) continue;
      const int rank = moving.front();
      moving.pop_front();
      while (errors_.empty() && move(rank)) {
      }
    }
    if (errors_.empty()) errors_ = find_stuck(played_, positions(), groups_, channels_);
    PlayResult result{.lines = {}, .errors = std::move(errors_)};
    for (RankState& rank : ranks_) result.lines.push_back(std::move(rank.line));
    return result;
  }

 private:
  struct RankState {
    int size = 0;         // number of actions of a step
    int next = 0;         // action that is next, over all repeats
    size_t call = 0;      // calls of this action that have been made
    bool begun = false;   // its own time has passed
    bool posted = false;  // it waits for the end of its call, or of its message
    double now = 0;
    WorkList works;
    PlayedLine line;
    int step() const { return next % size; }
  };

  BufferOf buffers_of(int index) const {
    if (!options_.buffer_of) return nullptr;
    return [this, index](const Resource& resource) { return options_.buffer_of(index, resource); };
  }

  std::vector<int> positions() const {
    std::vector<int> steps;
    for (const RankState& rank : ranks_) steps.push_back(rank.next == rank.size * options_.repeats ? -1 : rank.step());
    return steps;
  }

  ActionTime time_of(int index, int step, size_t call = 0) const {
    return options_.time ? options_.time(index, step, call) : ActionTime{};
  }
  const Action& action(int index, int step) const { return played_.ranks[index].program->actions[step]; }

  // Plays the rank's next action as far as it can. Returns whether the action is over.
  bool move(int index) {
    RankState& rank = ranks_[index];
    if (rank.next == rank.size * options_.repeats) return false;
    const int step = rank.step();
    if (!rank.begun && !begin(index, step)) return false;
    if (rank.posted || !make_calls(index, step)) return false;
    if (step + 1 == rank.size && !rank.works.await_unneeded(rank.now)) return false;
    rank.begun = false;
    rank.call = 0;
    ++rank.next;
    if (rank.next % rank.size == 0) end_step(rank);
    return true;
  }

  // Waits for what the action needs, and spends its own time.
  bool begin(int index, int step) {
    RankState& rank = ranks_[index];
    if (!rank.works.await_conflicts(step, rank.now)) return false;
    const auto& end = played_.messages[index][step];
    if (end && !(end->is_send ? channels_.await_slot(*end, rank.now) : await_message(index, step, *end))) return false;
    const ActionTime time = time_of(index, step);
    rank.line.computes[step] = {rank.now, rank.now + time.compute};
    rank.now += time.compute;
    rank.begun = true;
    if (end) pass_message(index, step, *end, time);
    if (const int queue = played_.queued[index][step]; queue >= 0) move_data(index, step, queue, time);
    return true;
  }

  // Starts the work of an action on a queue of the rank.
  void move_data(int index, int step, int queue, const ActionTime& time) {
    RankState& rank = ranks_[index];
    rank.posted = waits(index, step);
    const int work = rank.posted ? -1 : rank.works.add(step);
    const int lane = static_cast<int>(played_.groups.size() + played_.channels.size()) + queue;
    transfers_.add({lane, rank.now, time.transfer, {}, {index}},
                   [=, this](const PlaySpan& span) { finish(index, step, work, span); });
  }

  bool await_message(int index, int step, const PlayedEnd& end) {
    const SentMessage* message = channels_.next(end);
    if (!message) return false;
    if (auto error = compare_ends(played_, *message, index, step, end)) {
      errors_.push_back(std::move(*error));
      return false;
    }
    ranks_[index].now = std::max(ranks_[index].now, *message->arrival);
    return true;
  }

  void pass_message(int index, int step, const PlayedEnd& end, const ActionTime& time) {
    RankState& rank = ranks_[index];
    const PlayedChannel& channel = played_.channels[end.channel];
    if (!end.is_send) {
      channels_.take(end, rank.now);
      woken_.push_back(channel.sender);
      return;
    }
    const size_t message = channels_.send(end, step);
    rank.posted = waits(index, step);
    const int work = rank.posted ? -1 : rank.works.add(step);
    const int lane = static_cast<int>(played_.groups.size()) + end.channel;
    // A link carries both directions at their full speed, so a message is counted at its sender.
    transfers_.add({lane, rank.now, time.transfer, time.use, {index}}, [=, this](const PlaySpan& span) {
      channels_.arrive(end, message, span.end);
      woken_.push_back(played_.channels[end.channel].receiver);
      finish(index, step, work, span);
    });
  }

  // Notes at a rank when its transfer was under way.
  void finish(int index, int step, int work, const PlaySpan& span) {
    RankState& rank = ranks_[index];
    rank.line.transfers[step] = span;
    woken_.push_back(index);
    if (work >= 0) return rank.works.finish(work, span.end);
    rank.posted = false;
    rank.now = std::max(rank.now, span.end);
  }

  bool waits(int index, int step) const { return options_.waiting == Waiting::at_once || action(index, step).flag("wait"); }

  // Makes the calls of the action one after the other. A layer waits for each of its calls; of another action the last call may
  // stay in flight.
  bool make_calls(int index, int step) {
    RankState& rank = ranks_[index];
    const std::vector<int>& calls = played_.calls[index][step];
    while (rank.call < calls.size()) {
      const size_t call = rank.call++;
      const bool is_async = call + 1 == calls.size() && !waits(index, step) && role_of(action(index, step)) != Role::compute;
      rank.posted = !is_async;
      const ActionTime time = time_of(index, step, call);
      post(calls[call], index, {step, rank.now, time.transfer, time.use, is_async ? rank.works.add(step) : -1});
      if (rank.posted || !errors_.empty()) return false;
    }
    return true;
  }

  void post(int group, int index, const PostedCall& call) {
    if (!groups_.post(group, index, call)) return;
    auto calls = groups_.take(group);
    if (auto error = compare_calls(played_, group, calls)) return errors_.push_back(std::move(*error));
    TransferLanes::Transfer transfer{.lane = group};
    for (const auto& [member, made] : calls) {
      transfer.ready = std::max(transfer.ready, made.time);
      transfer.seconds = std::max(transfer.seconds, made.transfer);
      transfer.use.inside = std::max(transfer.use.inside, made.use.inside);
      transfer.use.across = std::max(transfer.use.across, made.use.across);
      transfer.ranks.push_back(member);
    }
    transfers_.add(std::move(transfer), [this, calls = std::move(calls)](const PlaySpan& span) {
      for (const auto& [member, made] : calls) finish(member, made.step, made.work, span);
    });
  }

  void end_step(RankState& rank) {
    if (rank.next < rank.size * options_.repeats) rank.line.begin = rank.now;
    else rank.line.end = rank.now;
  }

  const PlayedRanks& played_;
  const PlayOptions& options_;
  std::vector<RankState> ranks_;
  GroupCalls groups_;
  ChannelQueues channels_;
  TransferLanes transfers_;
  std::vector<int> woken_;
  std::vector<Refusal> errors_;
};

}  // namespace

PlayResult play(const PlayedRanks& played, const ModelInfo& model, const PlayOptions& options) {
  if (!played.errors.empty()) return {.lines = {}, .errors = played.errors};
  return Player(played, model, options).run();
}

}  // namespace zt
