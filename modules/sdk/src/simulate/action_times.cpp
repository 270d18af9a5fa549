#include "action_times.h"

#include <algorithm>

#include "hardware.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

// Returns the part of the measured work that this work is; 1 if either is not known.
double scale(double work, double measured) {
  return work > 0 && measured > 0 ? work / measured : 1;
}

int64_t memory_of(const Cost& cost) {
  return cost.memory_bytes + cost.host_memory_bytes;
}

// A measured time grows with the operations, or with the bytes of memory for actions without operations.
ActionTime scaled(const Costs::Measured& measured, const Cost& cost) {
  const double compute =
      measured.flops > 0 ? scale(cost.flops, measured.flops) : scale(static_cast<double>(memory_of(cost)), measured.memory_bytes);
  return {measured.compute * compute,
          measured.transfer * scale(static_cast<double>(cost.sent_bytes), static_cast<double>(measured.sent_bytes)) *
              scale(static_cast<double>(cost.moved_bytes()), static_cast<double>(measured.moved_bytes))};
}

// Returns the cost of moving bytes whose number only a rehearsal knows.
Cost moving_cost(const Action& action, int64_t bytes) {
  if (action.attr("home") != word_of(Tier::file)) return {.copied = bytes};
  return action.kind == Kinds::get().fetch_value ? Cost{.file_read = bytes} : Cost{.file_written = bytes};
}

}  // namespace

Cost action_cost(const Action& action, const RehearsedAction& rehearsed, const CostBasis& basis) {
  if (role_of(action) == Role::compute) {
    Cost cost{.flops = rehearsed.flops, .memory_bytes = 2 * rehearsed.made, .sent_bytes = rehearsed.sent};
    for (const int unit : basis.model.positions[action.target].units)
      cost.memory_bytes +=
          basis.units[unit].layout.numel * size_of(basis.model.units[unit].element_type(basis.program.precision.params));
    return cost;
  }
  if (message_of(action)) return {.memory_bytes = 2 * rehearsed.sent, .sent_bytes = rehearsed.sent};
  if (rehearsed.moved > 0) return moving_cost(action, rehearsed.moved);
  return cost_of(action, basis);
}

ActionTime ActionTimes::of(int played, int step, size_t call) const {
  const Action& action = played_.ranks[played].program->actions[step];
  const Cost cost = cost_of_action(action, played, step);
  const auto known = costs_.measured.find(measured_name(action, plan_.model()));
  ActionTime time;
  if (known != costs_.measured.end()) {
    time = scaled(known->second, cost);
  } else {
    const LinkTime transfer = transfer_time(action, played, step, call, cost);
    time = {compute_seconds(action, cost) + machine_seconds(action, {.host_memory_bytes = cost.host_memory_bytes}),
            transfer.seconds, transfer.use};
  }
  if (!queue_of(action).empty()) return time;  // the machine moves data beside the rank
  const bool may_overlap = !action.flag("wait") && role_of(action) != Role::compute && role_of(action) != Role::scalars;
  if (!costs_.hardware.overlaps && may_overlap) time = {time.compute + time.transfer};
  return time;
}

Cost ActionTimes::cost_of_action(const Action& action, int played, int step) const {
  const PlayedRank& rank = played_.ranks[played];
  const PlayedPart& part = parts_[played];
  const RankBasis basis{plan_.model(), *rank.program, part.held, plan_.optimizer_states()};
  return action_cost(action, part.rehearsal.actions[step], cost_basis(basis, Coord{played_.mesh, rank.rank}, action));
}

double ActionTimes::compute_seconds(const Action& action, const Cost& cost) const {
  const Hardware& machine = costs_.hardware;
  if (cost.flops == 0 && (cost.memory_bytes == 0 || cost.sent_bytes > 0)) return 0;  // a transfer's memory time is in its link
  const std::string type = float_type_name(plan_.main().precision.params);
  const auto rate = machine.flops.find(type);
  const bool is_known = cost.flops == 0 || (rate != machine.flops.end() && rate->second > 0);
  if (!is_known) {
    std::vector<std::string> others;
    for (const auto& [name, unused] : machine.flops) others.push_back(name);
    misuse("the costs{} have no rate of {} GEMMs, for {}: compute in another type{}, measure it, or give hardware.flops.{}",
           quoted(machine.name), type, measured_name(action, plan_.model()),
           others.empty() ? "" : fmt::format(" ({})", fmt::join(others, ", ")), type);
  }
  const double computing = cost.flops > 0 ? cost.flops / (rate->second * machine.efficiency.flops) : 0;
  const double bandwidth = machine.memory_bandwidth * machine.efficiency.memory;
  const double moving = bandwidth > 0 ? static_cast<double>(cost.memory_bytes) / bandwidth : 0;
  return computing + moving + machine.launch;
}

// The ranks of a machine share its disks, its way to the host, and the host's memory.
double ActionTimes::machine_seconds(const Action& action, const Cost& cost) const {
  const Hardware& machine = costs_.hardware;
  double seconds = 0;
  const auto add = [&](int64_t bytes, double rate, const char* name) {
    if (bytes == 0) return;
    if (rate <= 0)
      misuse("the costs{} have no {} for {}: measure it, or give {} in bytes per second", quoted(machine.name), name,
             measured_name(action, plan_.model()),
             std::string_view(name).starts_with("file")
                 ? "hardware.file_read and hardware.file_write (`ztoolkit io bench`, or zt.offload.measure_disk)"
                 : fmt::format("hardware.{}", name));
    const auto ranks = std::min<int64_t>(machine.ranks_per_machine, played_.mesh.world_size());
    seconds += static_cast<double>(bytes * ranks) / rate;
  };
  add(cost.file_read, machine.file_read, "file_read");
  add(cost.file_written, machine.file_write, "file_write");
  add(cost.copied, machine.host_copy, "host_copy");
  add(cost.host_memory_bytes, machine.host_memory, "host_memory");
  return seconds;
}

LinkTime ActionTimes::transfer_time(const Action& action, int played, int step, size_t call, const Cost& cost) const {
  if (cost.moved_bytes() > 0) {
    const Cost moved{.file_read = cost.file_read, .file_written = cost.file_written, .copied = cost.copied};
    return {machine_seconds(action, moved)};
  }
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
  const bool is_two_level = plan_.link(group.axes).has_levels;
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
