#include "zt/execute/executor.h"

#include <algorithm>

#include "program/resource_ids.h"
#include "zt/base/error.h"
#include "zt/process/activity.h"

namespace zt {

ZT_DEFINE_OBJECT(ActionHandler, "ActionHandler")

ActionHandler::~ActionHandler() = default;

bool StepState::is_first_copy(const std::vector<std::string>& axes) const {
  const auto is_among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  return std::ranges::all_of(axes, [&](const std::string& axis) {
    return is_among(sample_axes, axis) || is_among(split_axes, axis) || coord[axis] == 0;
  });
}

namespace {

// Returns the units whose gradients are among the resources.
std::vector<int> gradients_in(const std::vector<Resource>& resources) {
  std::vector<int> units;
  for (const Resource& resource : resources) {
    if (resource.kind == ResourceKind::grad) units.push_back(resource.index);
  }
  return units;
}

}  // namespace

Executor::Executor(Program program, const ModelInfo& model, const Handlers& handlers, std::function<void(int)> complete_gradient,
                   Trace* trace, const BufferOf& buffer_of)
    : program_(std::move(program)), handlers_(handlers), complete_gradient_(std::move(complete_gradient)), trace_(trace) {
  std::vector<Resources> resources;
  for (const Action& action : program_.actions) resources.push_back(resources_of(action, model));
  for (const Resources& declared : resources) gradients_read_.push_back(gradients_in(declared.reads));
  if (buffer_of) {
    for (Resources& declared : resources) {
      for (auto* list : {&declared.reads, &declared.writes, &declared.frees})
        std::ranges::transform(*list, list->begin(), buffer_of);
    }
  }
  const ResourceIds ids(resources);
  for (size_t i = 0; i < resources.size(); ++i) instructions_.push_back(make_instruction(program_.actions[i], resources[i], ids));
  holders_.resize(static_cast<size_t>(ids.size()));
}

Executor::Instruction Executor::make_instruction(const Action& action, const Resources& resources, const ResourceIds& ids) {
  const auto handler = handlers_.find(action.kind);
  if (handler == handlers_.end()) {
    misuse(
        "nothing runs the action {}: apply the pass that brings its handler (zero.shard for REDUCE_GRAD and UNSHARD), also where "
        "the program is given whole",
        action_text(action));
  }
  Instruction instruction{handler->second.get(), {}, action_text(action), 0, action.flag("wait")};
  if (trace_) instruction.trace_name = trace_->intern(instruction.text);
  std::vector<Resource> changed = resources.writes;
  changed.insert(changed.end(), resources.frees.begin(), resources.frees.end());
  instruction.touched.written = ids.of(changed);
  instruction.touched.read = ids.of(resources.reads, instruction.touched.written);
  return instruction;
}

void Executor::wait_for(int entry) {
  const InFlight flight = std::move(*in_flight_[entry]);
  in_flight_[entry].reset();  // a work that failed throws only once
  for (const int id : flight.touched->written) holders_[id].writer = -1;
  for (const int id : flight.touched->read) std::erase(holders_[id].readers, entry);
  const int64_t begin = now_ns();
  flight.work.wait();
  if (trace_ && trace_->on()) {
    const int64_t end = now_ns();
    trace_->add(flight.trace_name, Trace::Lane::communication, flight.begin_ns, end);
    if (end - begin > 1000) trace_->add(trace_->intern("wait"), Trace::Lane::compute, begin, end);
  }
}

void Executor::wait_for_conflicts(const Touched& touched) {
  for (const int id : touched.read) {
    if (holders_[id].writer >= 0) wait_for(holders_[id].writer);
  }
  for (const int id : touched.written) {
    if (holders_[id].writer >= 0) wait_for(holders_[id].writer);
    while (!holders_[id].readers.empty()) wait_for(holders_[id].readers.front());
  }
}

void Executor::wait_for_all(bool (*is_wanted)(const InFlight&)) {
  for (size_t entry = 0; entry < in_flight_.size(); ++entry) {
    if (in_flight_[entry] && is_wanted(*in_flight_[entry])) wait_for(static_cast<int>(entry));
  }
}

void Executor::start(const Instruction& instruction, const Action& action, StepState& state) {
  const Activity activity(instruction.text);
  const int64_t begin = now_ns();
  Work work = instruction.handler->start(action, state);
  if (trace_ && trace_->on()) trace_->add(instruction.trace_name, Trace::Lane::compute, begin, now_ns());
  if (work.done()) return work.wait();  // throws if it failed
  auto free_entry = std::ranges::find_if(in_flight_, [](const auto& flight) { return !flight.has_value(); });
  if (free_entry == in_flight_.end()) free_entry = in_flight_.emplace(in_flight_.end());
  *free_entry = InFlight{std::move(work), &instruction.touched, instruction.trace_name, begin};
  const int entry = static_cast<int>(free_entry - in_flight_.begin());
  for (const int id : instruction.touched.written) holders_[id].writer = entry;
  for (const int id : instruction.touched.read) holders_[id].readers.push_back(entry);
  if (instruction.waits) wait_for(entry);
}

void Executor::run(StepState& state, int begin, int end) {
  const int last = static_cast<int>(instructions_.size());
  if (end < 0) end = last;
  for (int i = begin; i < end; ++i) {
    const Instruction& instruction = instructions_[i];
    wait_for_conflicts(instruction.touched);
    for (const int unit : gradients_read_[i]) complete_gradient_(unit);
    start(instruction, program_.actions[i], state);
  }
  // No later action waits for a work without resources.
  if (end == last) wait_for_all([](const InFlight& flight) { return flight.touched->empty(); });
}

void Executor::drain() {
  wait_for_all([](const InFlight&) { return true; });
}

}  // namespace zt
