#include "action_times.h"

#include <algorithm>
#include <cmath>

#include "zt/base/error.h"

namespace zt {

ActionTime ActionTimes::of(int played, int step) const {
  const Action& action = played_.ranks[played].program->actions[step];
  const Cost cost = cost_of_action(action, played, step);
  const auto known = costs_.measured.find(measured_name(action, plan_.model().info()));
  ActionTime time;
  if (known != costs_.measured.end()) {
    const Costs::Measured& measured = known->second;
    const bool scales = measured.sent_bytes > 0 && cost.sent_bytes > 0;
    const double scale = scales ? static_cast<double>(cost.sent_bytes) / static_cast<double>(measured.sent_bytes) : 1;
    time = {measured.compute, measured.transfer * scale};
  } else {
    time = {compute_seconds(action, cost), transfer_seconds(action, played, step, cost)};
  }
  const bool may_overlap = !action.flag("wait") && role_of(action) != Role::compute && role_of(action) != Role::scalars;
  if (!costs_.hardware.overlaps && may_overlap) time = {time.compute + time.transfer, 0};
  return time;
}

// A layer reads its parameters, and writes and reads once what it makes.
Cost ActionTimes::cost_of_action(const Action& action, int played, int step) const {
  const PlayedRank& rank = played_.ranks[played];
  const PlayedPart& part = parts_[played];
  const ModelInfo& model = plan_.model().info();
  if (role_of(action) == Role::compute) {
    const RehearsedAction& rehearsed = part.rehearsal.actions[step];
    Cost cost{.flops = rehearsed.flops, .memory_bytes = 2 * rehearsed.made, .sent_bytes = rehearsed.sent};
    for (const int unit : model.positions[action.target].units)
      cost.memory_bytes +=
          part.held.units[unit].layout.numel * static_cast<int64_t>(c10::elementSize(rank.program->precision.params));
    return cost;
  }
  if (message_of(action)) {
    const int64_t bytes = part.rehearsal.actions[step].sent;
    return {.memory_bytes = 2 * bytes, .sent_bytes = bytes};
  }
  return cost_of(action, {.model = model,
                          .program = *rank.program,
                          .units = part.held.units,
                          .ranks = Coord{played_.mesh, rank.rank}.size(action.axes()),
                          .optimizer_states = static_cast<int64_t>(plan_.optimizer().state_names().size())});
}

double ActionTimes::compute_seconds(const Action& action, const Cost& cost) const {
  const Hardware& machine = costs_.hardware;
  if (cost.flops == 0 && (cost.memory_bytes == 0 || cost.sent_bytes > 0)) return 0;  // a transfer's memory time is in its link
  const std::string type = float_type_name(plan_.program(Mode::train).precision.params);
  const auto rate = machine.flops.find(type);
  const bool is_known = cost.flops == 0 || (rate != machine.flops.end() && rate->second > 0);
  if (!is_known || (cost.flops == 0 && machine.memory_bandwidth == 0)) {
    misuse("the costs '{}' do not tell how long {} takes: measure it, or give hardware.{}", machine.name,
           measured_name(action, plan_.model().info()), is_known ? "memory_bandwidth" : "flops." + type);
  }
  const double computing = cost.flops > 0 ? cost.flops / rate->second : 0;
  const double moving = machine.memory_bandwidth > 0 ? static_cast<double>(cost.memory_bytes) / machine.memory_bandwidth : 0;
  return std::max(computing, moving) / machine.efficiency + machine.launch;
}

const LinkSpeed& ActionTimes::link(int rank, const std::vector<std::string>& axes) const {
  const auto [known, is_new] = links_.emplace(std::pair(rank, axes), nullptr);
  if (!is_new) return *known->second;
  const Hardware& machine = costs_.hardware;
  const auto machine_of = [&](int other) { return other / machine.ranks_per_machine; };
  const bool is_inside =
      std::ranges::all_of(played_.mesh.group(rank, axes), [&](int other) { return machine_of(other) == machine_of(rank); });
  known->second = is_inside ? &machine.inside : &machine.across;
  return *known->second;
}

double ActionTimes::transfer_seconds(const Action& action, int played, int step, const Cost& cost) const {
  const auto over = [&](const std::vector<std::string>& axes, double ranks) {
    const LinkSpeed& way = link(played_.ranks[played].rank, axes);
    if (cost.sent_bytes > 0 && way.bandwidth == 0) {
      misuse("the costs '{}' do not tell how long {} takes: measure it, or give the bandwidth of hardware.inside and across",
             costs_.hardware.name, measured_name(action, plan_.model().info()));
    }
    const double sending =
        cost.sent_bytes > 0 ? static_cast<double>(cost.sent_bytes) / (way.bandwidth * costs_.hardware.efficiency) : 0;
    return way.latency * std::ceil(std::log2(ranks)) + sending;
  };
  if (const auto message = message_of(action)) return message->is_send ? over(message->axes, 2) : 0;
  double seconds = 0;
  for (const int group : played_.calls[played][step]) seconds += over(played_.groups[group].axes, played_.groups[group].size());
  return seconds;
}

}  // namespace zt
