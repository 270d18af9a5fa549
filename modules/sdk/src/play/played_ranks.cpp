#include "played_ranks.h"

#include <algorithm>
#include <numeric>

#include "zt/base/error.h"

namespace zt {

namespace {

// The axes of a communicator, and a unit if only the ranks that hold it belong to it.
struct View {
  std::vector<std::string> axes;
  int unit = -1;
  auto operator<=>(const View&) const = default;
};
// Numbers of ranks, by color.
using Histogram = std::map<int, int>;

// Returns, by rank, the lowest rank of its group along the axes.
std::vector<int> group_leaders(const MeshShape& mesh, const std::vector<std::string>& axes) {
  std::vector<int> leaders(static_cast<size_t>(mesh.world_size()));
  std::iota(leaders.begin(), leaders.end(), 0);
  int stride = 1;
  for (auto axis = mesh.axes().rbegin(); axis != mesh.axes().rend(); ++axis) {
    if (std::ranges::find(axes, axis->name) != axes.end()) {
      for (int rank = 0; rank < mesh.world_size(); ++rank) leaders[rank] -= rank / stride % axis->size * stride;
    }
    stride *= axis->size;
  }
  return leaders;
}

// Gives each rank a color, so that ranks of one color behave alike. It begins with the ranks that have equal programs and the
// same place in the groups of their messages. It splits the colors until the groups of ranks of one color are composed alike.
class Coloring {
 public:
  Coloring(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs)
      : mesh_(mesh), programs_(programs), colors_(programs.size()) {
    std::map<const RankProgram*, int> known;
    for (const RankProgram* program : programs) {
      if (known.emplace(program, static_cast<int>(known.size())).second) note_views(*program, model);
    }
    std::vector<std::vector<int>> keys;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      std::vector<int>& key = keys.emplace_back(std::vector{known.at(programs[rank])});
      for (const auto& axes : message_axes_.at(programs[rank])) key.push_back(Coord{mesh, rank}.index(axes));
    }
    recolor(keys);
    while (split()) {
    }
  }

  const std::vector<int>& colors() const { return colors_; }
  // Returns the composition of the rank's group.
  const Histogram& group_of(int rank, const View& view) const { return histograms_.at(view).at(leaders_.at(view.axes)[rank]); }
  static View view_of(const std::vector<std::string>& axes, const Action& action) {
    return {axes, kind(action.kind).among_holders ? action.target : -1};
  }

 private:
  void note_views(const RankProgram& program, const ModelInfo& model) {
    std::vector<View>& views = views_[&program];
    auto& message_axes = message_axes_[&program];
    const auto add = [](auto& list, const auto& entry) {
      if (std::ranges::find(list, entry) == list.end()) list.push_back(entry);
    };
    for (const Action& action : program.actions) {
      for (const auto& axes : communicators_of(action, model)) add(views, view_of(axes, action));
      const auto message = message_of(action);
      if (!message) continue;
      add(message_axes, message->axes);
      add(views, View{message->axes});
    }
    for (const View& view : views) {
      if (!leaders_.contains(view.axes)) leaders_[view.axes] = group_leaders(mesh_, view.axes);
      histograms_[view];
    }
  }

  // Numbers the distinct keys in the order of the ranks. Returns the number of colors.
  int recolor(const std::vector<std::vector<int>>& keys) {
    std::map<std::vector<int>, int> numbers;
    for (size_t rank = 0; rank < keys.size(); ++rank)
      colors_[rank] = numbers.emplace(keys[rank], static_cast<int>(numbers.size())).first->second;
    return static_cast<int>(numbers.size());
  }

  // Splits colors whose ranks have groups of different compositions. Returns whether there were any.
  bool split() {
    const int before = 1 + *std::ranges::max_element(colors_);
    std::map<View, std::map<int, int>> composition_numbers;  // by the group's leader
    for (auto& [view, of_groups] : histograms_) {
      of_groups.clear();
      const auto& leaders = leaders_.at(view.axes);
      for (int rank = 0; rank < mesh_.world_size(); ++rank) {
        if (view.unit < 0 || programs_[rank]->units[view.unit].held) ++of_groups[leaders[rank]][colors_[rank]];
      }
      std::map<Histogram, int> numbers;
      for (const auto& [leader, histogram] : of_groups)
        composition_numbers[view][leader] = numbers.emplace(histogram, static_cast<int>(numbers.size())).first->second;
    }
    std::vector<std::vector<int>> keys;
    for (int rank = 0; rank < mesh_.world_size(); ++rank) {
      std::vector<int>& key = keys.emplace_back(std::vector{colors_[rank]});
      for (const View& view : views_.at(programs_[rank]))
        key.push_back(composition_numbers.at(view)[leaders_.at(view.axes)[rank]]);
    }
    return recolor(keys) > before;
  }

  const MeshShape& mesh_;
  const std::vector<const RankProgram*>& programs_;
  std::vector<int> colors_;                                // by rank
  std::map<const RankProgram*, std::vector<View>> views_;  // of the program's communicators
  std::map<const RankProgram*, std::vector<std::vector<std::string>>> message_axes_;
  std::map<std::vector<std::string>, std::vector<int>> leaders_;  // by axes, then by rank
  std::map<View, std::map<int, Histogram>> histograms_;           // by the group's leader
};

// Numbers groups and channels as the played ranks meet them.
class LinkNumbering {
 public:
  LinkNumbering(const ModelInfo& model, const MeshShape& mesh, const Coloring& coloring, PlayedRanks& played)
      : model_(model), mesh_(mesh), coloring_(coloring), played_(played) {}

  void add(int played) {
    const PlayedRank& rank = played_.ranks[played];
    auto& calls = played_.calls.emplace_back();
    auto& messages = played_.messages.emplace_back();
    auto& queued = played_.queued.emplace_back();
    std::map<std::string, int> queues;  // of this rank, by name
    for (const Action& action : rank.program->actions) {
      const std::string queue = queue_of(action);
      queued.push_back(queue.empty() ? -1 : queues.try_emplace(queue, played_.queues).first->second);
      if (queued.back() == played_.queues) ++played_.queues;
      auto& groups = calls.emplace_back();
      for (const auto& axes : communicators_of(action, model_)) {
        const int group = group_of(rank.rank, Coloring::view_of(axes, action));
        if (group >= 0) groups.push_back(group);
      }
      messages.push_back(end_of(played, static_cast<int>(messages.size()), action));
    }
  }

 private:
  // Returns the index of the group; -1 if it is of one rank.
  int group_of(int rank, const View& view) {
    const Histogram& histogram = coloring_.group_of(rank, view);
    const auto [found, is_new] = groups_.emplace(std::pair(view, histogram), -1);
    if (!is_new) return found->second;
    PlayedGroup group{.axes = view.axes, .members = {}};
    for (const auto& [color, count] : histogram) group.members.push_back({color, count});
    if (group.size() == 1) return -1;
    played_.groups.push_back(std::move(group));
    return found->second = static_cast<int>(played_.groups.size()) - 1;
  }

  std::optional<PlayedEnd> end_of(int played, int step, const Action& action) {
    const auto message = message_of(action);
    if (!message) return std::nullopt;
    const int rank = played_.ranks[played].rank;
    const std::vector<int> group = mesh_.group(rank, message->axes);
    const auto refuse = [&](std::string reason) {
      played_.errors.push_back({rank, step, std::move(reason)});
      return std::nullopt;
    };
    const bool is_peer = message->peer >= 0 && message->peer < static_cast<int>(group.size());
    if (!is_peer || group[message->peer] == rank)
      return refuse(fmt::format("its peer {} is not another of the {} ranks of axis '{}'", message->peer, group.size(),
                                fmt::join(message->axes, "+")));
    if (message->depth < 1) return refuse(fmt::format("a channel of depth {} holds no message: give at least 1", message->depth));
    const int peer = played_.played_as[group[message->peer]];
    const std::pair ends = message->is_send ? std::pair(played, peer) : std::pair(peer, played);
    const auto [found, is_new] = channels_.emplace(std::pair(message->channel, ends), static_cast<int>(channels_.size()));
    if (is_new) played_.channels.push_back({message->channel, ends.first, ends.second});
    return PlayedEnd{found->second, message->is_send, message->depth};
  }

  const ModelInfo& model_;
  const MeshShape& mesh_;
  const Coloring& coloring_;
  PlayedRanks& played_;
  std::map<std::pair<View, Histogram>, int> groups_;
  std::map<std::pair<std::string, std::pair<int, int>>, int> channels_;
};

}  // namespace

int PlayedGroup::size() const {
  return std::accumulate(members.begin(), members.end(), 0, [](int sum, const Member& member) { return sum + member.count; });
}

int PlayedGroup::member_of(int played) const {
  const auto found = std::ranges::find(members, played, &Member::played);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::string PlayedGroup::name() const {
  return fmt::format("{}", fmt::join(axes, "+"));
}

int rank_in_group(const PlayedRanks& played, const std::vector<std::string>& axes, int rank, int member) {
  const std::vector<int> group = played.mesh.group(rank, axes);
  const auto found = std::ranges::find_if(group, [&](int other) { return other != rank && played.played_as[other] == member; });
  return found == group.end() ? rank : *found;
}

PlayedRanks played_ranks(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs) {
  const Coloring coloring(model, mesh, programs);
  PlayedRanks played;
  played.mesh = mesh;
  played.played_as = coloring.colors();
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int color = played.played_as[rank];
    if (color == static_cast<int>(played.ranks.size())) played.ranks.push_back({rank, 0, programs[rank]});
    ++played.ranks[color].count;
  }
  LinkNumbering links(model, mesh, coloring, played);
  for (int color = 0; color < static_cast<int>(played.ranks.size()); ++color) links.add(color);
  return played;
}

}  // namespace zt
