#include "player.h"

#include <algorithm>
#include <deque>

#include "play/play_errors.h"
#include "play/play_links.h"
#include "play/work_list.h"

namespace zt {

namespace {

// Plays each rank until it has to wait for another one, which wakes it up. The times do not depend on the order in which ranks
// are played, because each communicator and channel is used in the order of its calls.
class Player {
 public:
  Player(const PlayedRanks& played, const ModelInfo& model, const PlayOptions& options)
      : played_(played), options_(options), groups_(played), channels_(played) {
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
    while (!moving.empty() && errors_.empty()) {
      const int rank = moving.front();
      moving.pop_front();
      while (errors_.empty() && move(rank)) {
      }
      moving.insert(moving.end(), woken_.begin(), woken_.end());
      woken_.clear();
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
    bool posted = false;  // its next call waits for other ranks
    double now = 0;
    WorkList works;
    PlayedLine line;
    int step() const { return next % size; }
  };

  std::function<Resource(const Resource&)> buffers_of(int index) const {
    if (!options_.buffer_of) return nullptr;
    return [this, index](const Resource& resource) { return options_.buffer_of(index, resource); };
  }

  std::vector<int> positions() const {
    std::vector<int> steps;
    for (const RankState& rank : ranks_) steps.push_back(rank.next == rank.size * options_.repeats ? -1 : rank.step());
    return steps;
  }

  ActionTime time_of(int index, int step) const { return options_.time ? options_.time(index, step) : ActionTime{}; }
  const Action& action(int index, int step) const { return played_.ranks[index].program->actions[step]; }

  // Plays the rank's next action as far as it can. Returns whether the action is over.
  bool move(int index) {
    RankState& rank = ranks_[index];
    if (rank.next == rank.size * options_.repeats) return false;
    const int step = rank.step();
    if (!rank.begun && !begin(index, step)) return false;
    if (!make_calls(index, step)) return false;
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
    if (end) pass_message(index, step, *end, time.transfer);
    return true;
  }

  bool await_message(int index, int step, const PlayedEnd& end) {
    const SentMessage* message = channels_.next(end);
    if (!message) return false;
    if (auto error = compare_ends(played_, *message, index, step, end)) {
      errors_.push_back(std::move(*error));
      return false;
    }
    ranks_[index].now = std::max(ranks_[index].now, message->arrival);
    return true;
  }

  void pass_message(int index, int step, const PlayedEnd& end, double transfer) {
    RankState& rank = ranks_[index];
    const PlayedChannel& channel = played_.channels[end.channel];
    if (!end.is_send) {
      channels_.take(end, rank.now);
      woken_.push_back(channel.sender);
      return;
    }
    const PlaySpan span = channels_.send(end, step, rank.now, transfer);
    rank.line.transfers[step] = span;
    woken_.push_back(channel.receiver);
    if (waits(index, step)) rank.now = span.end;
    else rank.works.add(step, span.end);
  }

  bool waits(int index, int step) const { return options_.waiting == Waiting::at_once || action(index, step).flag("wait"); }

  // Makes the calls of the action one after the other. A layer waits for each of its calls; of another action the last call may
  // stay in flight.
  bool make_calls(int index, int step) {
    RankState& rank = ranks_[index];
    const std::vector<int>& calls = played_.calls[index][step];
    while (rank.call < calls.size()) {
      if (rank.posted) return false;
      const int group = calls[rank.call];
      const bool is_async = rank.call + 1 == calls.size() && !waits(index, step) && role_of(action(index, step)) != Role::compute;
      rank.posted = !is_async;
      if (is_async) ++rank.call;
      post(group, index, {step, rank.now, time_of(index, step).transfer, is_async ? rank.works.add(step) : -1});
      if (!errors_.empty()) return false;
    }
    return true;
  }

  void post(int group, int index, const PostedCall& call) {
    if (!groups_.post(group, index, call)) return;
    const auto calls = groups_.complete(group);
    if (auto error = compare_calls(played_, group, calls)) return errors_.push_back(std::move(*error));
    const PlaySpan span = groups_.last(group);
    for (const auto& [member, made] : calls) {
      RankState& rank = ranks_[member];
      rank.line.transfers[made.step] = span;
      woken_.push_back(member);
      if (made.work >= 0) {
        rank.works.finish(made.work, span.end);
        continue;
      }
      rank.posted = false;
      ++rank.call;
      rank.now = std::max(rank.now, span.end);
    }
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
  std::vector<int> woken_;
  std::vector<PlayError> errors_;
};

}  // namespace

PlayResult play(const PlayedRanks& played, const ModelInfo& model, const PlayOptions& options) {
  if (!played.errors.empty()) return {.lines = {}, .errors = played.errors};
  return Player(played, model, options).run();
}

}  // namespace zt
