#include "measure.h"

#include <algorithm>
#include <array>

#include "simulate/action_times.h"
#include "zt/process/trace.h"

namespace zt {

namespace {

double seconds(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Waits for the other ranks of the action's communicators, and returns whether there are any.
bool await_others(const Action& action, StepState& state) {
  if (kind(action.kind).among_holders) {
    const Unit& unit = state.units.at(action.target);
    if (unit.holders.size() < 2) return false;
    state.links->holders(unit).barrier();
    return true;
  }
  bool has_others = false;
  for (const auto& axes : communicators_of(action, *state.model)) {
    Communicator& comm = state.links->control(axes);
    if (comm.size() > 1) comm.barrier();
    has_others = has_others || comm.size() > 1;
  }
  return has_others;
}

// Sums by name, to be divided by their number.
struct Sum {
  Costs::Measured total;
  int64_t count = 0;
  void add(const Costs::Measured& cost) {
    total.compute += cost.compute;
    total.transfer += cost.transfer;
    total.sent_bytes += cost.sent_bytes;
    total.flops += cost.flops;
    total.memory_bytes += cost.memory_bytes;
    total.moved_bytes += cost.moved_bytes;
    ++count;
  }
  Costs::Measured mean() const {
    const auto n = static_cast<double>(count);
    return {total.compute / n, total.transfer / n,     total.sent_bytes / count,
            total.flops / n,   total.memory_bytes / n, total.moved_bytes / count};
  }
};

// Bytes per second of several actions.
struct Rate {
  double bytes = 0, seconds = 0;
  void add(int64_t more, double in) {
    bytes += static_cast<double>(more);
    seconds += in;
  }
  double value() const { return seconds > 0 ? bytes / seconds : 0; }
};

std::map<std::string, Costs::Measured> means(const std::map<std::string, Sum>& sums) {
  std::map<std::string, Costs::Measured> measured;
  for (const auto& [name, sum] : sums) measured[name] = sum.mean();
  return measured;
}

}  // namespace

void CostMeter::run(Executor& executor, StepState& state) {
  const auto& actions = executor.program().actions;
  times_.resize(actions.size());
  for (const Unit& unit : state.units) overlaps_ = overlaps_ || (unit.full.defined() && !unit.full.is_cpu());
  executor.drain();
  for (size_t i = 0; i < actions.size(); ++i) {
    met_ = static_cast<int>(i);
    const bool has_others = await_others(actions[i], state);
    const int64_t begin = now_ns();
    executor.run(state, static_cast<int>(i), static_cast<int>(i) + 1);
    const int64_t started = now_ns();
    executor.drain();
    const int64_t end = now_ns();
    const bool is_own = (!has_others && queue_of(actions[i]).empty()) || role_of(actions[i]) == Role::compute;
    constexpr double kAtOnce = 0.1;  // less of the time after the start means that the action has waited by itself
    const bool is_async = seconds(started, end) > kAtOnce * seconds(begin, end);
    times_[i].compute.push_back(is_own ? seconds(begin, end) : is_async ? seconds(begin, started) : 0);
    times_[i].transfer.push_back(is_own ? 0 : is_async ? seconds(started, end) : seconds(begin, end));
  }
  met_ = -1;
}

void CostMeter::join(Executor& executor, StepState& state) {
  const auto& actions = executor.program().actions;
  for (int i = executor.next(); i < static_cast<int>(actions.size()); ++i) {
    if (i > met_) await_others(actions[i], state);
    executor.join_rest(state, i + 1);
  }
  met_ = -1;
}

// The time of a message contains the wait for its peer, so the least one counts.
std::map<std::string, Costs::Measured> CostMeter::own_costs(const std::vector<Cost>& work) const {
  const RankProgram& program = plan_.main();
  std::map<std::string, Sum> sums;
  std::map<std::string, std::vector<double>> messages;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    const Action& action = program.actions[i];
    const std::string name = measured_name(action, plan_.model());
    sums[name].add({median(times_[i].compute), median(times_[i].transfer), work[i].sent_bytes, work[i].flops,
                    static_cast<double>(work[i].memory_bytes + work[i].host_memory_bytes), work[i].moved_bytes()});
    if (message_of(action)) messages[name].insert(messages[name].end(), times_[i].compute.begin(), times_[i].compute.end());
  }
  auto measured = means(sums);
  for (const auto& [name, times] : messages) measured[name].compute = *std::ranges::min_element(times);
  return measured;
}

// Returns the work of each action of a step.
std::vector<Cost> CostMeter::work_of(const std::vector<Batch>& micro_batches) const {
  const RankProgram& program = plan_.main();
  const Coord coord = plan_.program().coord();
  const Rehearsal rehearsal = plan_.rehearsal(micro_batches);
  const RankBasis basis{plan_.model(), program, plan_.rank_units(), plan_.optimizer_states()};
  std::vector<Cost> work;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    const Action& action = program.actions[i];
    work.push_back(action_cost(action, rehearsal.actions[i], cost_basis(basis, coord, action)));
  }
  return work;
}

// Returns the rates that the measured times show on this rank.
Hardware CostMeter::rates(const std::map<std::string, Costs::Measured>& measured, const std::vector<Cost>& work) const {
  const RankProgram& program = plan_.main();
  double flops = 0, computing = 0, updated = 0, updating = 0, sent = 0, sending = 0;
  std::array<Rate, 3> moved;  // read from files, written to files, copied
  Rate on_host;               // of updates in the host's memory
  for (size_t i = 0; i < program.actions.size(); ++i) {
    const Action& action = program.actions[i];
    const Costs::Measured& cost = measured.at(measured_name(action, plan_.model()));
    if (role_of(action) == Role::compute) {
      flops += work[i].flops;
      computing += cost.compute;
    } else if (work[i].host_memory_bytes > 0) {
      on_host.add(work[i].host_memory_bytes, cost.compute);
    } else if (work[i].moved_bytes() > 0) {
      const std::array bytes{work[i].file_read, work[i].file_written, work[i].copied};
      for (size_t way = 0; way < bytes.size(); ++way) {  // of actions that move in several ways the parts are not known
        if (bytes[way] == work[i].moved_bytes()) moved[way].add(bytes[way], cost.transfer);
      }
    } else if (role_of(action) == Role::update) {
      updated += static_cast<double>(work[i].memory_bytes);
      updating += cost.compute;
    } else if (work[i].sent_bytes > 0 && !message_of(action)) {
      sent += static_cast<double>(work[i].sent_bytes);
      sending += cost.transfer;
    }
  }
  Hardware rates;
  rates.name = kMeasuredMachine;
  rates.source = "steps of this run";
  if (computing > 0 && flops > 0) rates.flops[float_type_name(program.precision.params)] = flops / computing;
  if (updating > 0) rates.memory_bandwidth = updated / updating;
  rates.file_read = moved[0].value();
  rates.file_write = moved[1].value();
  rates.host_copy = moved[2].value();
  rates.host_memory = on_host.value();
  if (sending > 0) rates.inside = rates.across = {0, sent / sending};
  rates.overlaps = overlaps_;
  return rates;
}

Costs CostMeter::costs(const std::vector<Batch>& micro_batches) const {
  const std::vector<Cost> work = work_of(micro_batches);
  Costs mine{.hardware = {}, .measured = own_costs(work)};
  mine.hardware = rates(mine.measured, work);
  const auto& mesh = plan_.program().mesh();
  if (!mesh || plan_.world_place().size == 1) return mine;
  std::map<std::string, Sum> sums;
  Costs costs;
  const auto all = mesh->world()->control->all_gather_values(to_value(mine), "shares measured times");
  for (const Value& of_rank : all) {
    const Costs theirs = parse_costs(of_rank);
    if (costs.hardware.name.empty()) costs.hardware = theirs.hardware;
    for (const auto& [name, cost] : theirs.measured) sums[name].add(cost);
  }
  costs.measured = means(sums);
  return costs;
}

}  // namespace zt
