#include "action_times.h"

#include <algorithm>

#include "hardware.h"
#include "zt/base/error.h"

namespace zt {

ActionTime ActionTimes::of(int played, int step, size_t call) const {
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
    const LinkTime transfer = transfer_time(action, played, step, call, cost);
    time = {compute_seconds(action, cost), transfer.seconds, transfer.use};
  }
  const bool may_overlap = !action.flag("wait") && role_of(action) != Role::compute && role_of(action) != Role::scalars;
  if (!costs_.hardware.overlaps && may_overlap) time = {time.compute + time.transfer};
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
    misuse("the costs{} do not tell how long {} takes: measure it, or give hardware.{}", quoted(machine.name),
           measured_name(action, plan_.model().info()), is_known ? "memory_bandwidth" : "flops." + type);
  }
  const double computing = cost.flops > 0 ? cost.flops / (rate->second * machine.efficiency.flops) : 0;
  const double bandwidth = machine.memory_bandwidth * machine.efficiency.memory;
  const double moving = bandwidth > 0 ? static_cast<double>(cost.memory_bytes) / bandwidth : 0;
  return computing + moving + machine.launch;
}

LinkTime ActionTimes::transfer_time(const Action& action, int played, int step, size_t call, const Cost& cost) const {
  if (const auto message = message_of(action)) {
    if (!message->is_send) return {};
    return links_.message(played_.ranks[played].rank, message->axes, message->peer, cost.sent_bytes);
  }
  return call < played_.calls[played][step].size() ? call_time(played, step, call, cost) : LinkTime{};
}

// A layer says what it sends along each axis.
LinkTime ActionTimes::call_time(int played, int step, size_t call, const Cost& cost) const {
  const int rank = played_.ranks[played].rank;
  const PlayedGroup& group = played_.groups[played_.calls[played][step][call]];
  const bool is_two_level = plan_.link(group.axes).backend == "two_level";
  if (role_of(played_.ranks[played].program->actions[step]) != Role::compute)
    return links_.collective(rank, group.axes, cost.sent_bytes, is_two_level);
  const auto& along = parts_[played].rehearsal.actions[step].sent_along;
  const auto found = along.find(group.name());
  const SentBytes sent = found == along.end() ? SentBytes{} : found->second;
  const LinkTime to_each = links_.all_to_all(rank, group.axes, sent.all_to_all);
  if (sent.collective == 0) return to_each;
  const LinkTime around = links_.collective(rank, group.axes, sent.collective, is_two_level);
  if (sent.all_to_all == 0) return around;
  return {to_each.seconds + around.seconds,
          {std::max(to_each.use.inside, around.use.inside), std::max(to_each.use.across, around.use.across)}};
}

}  // namespace zt
