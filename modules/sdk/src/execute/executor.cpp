#include "zt/execute/executor.h"

#include <algorithm>

#include "program/conflict_table.h"
#include "zt/base/error.h"
#include "zt/process/activity.h"

namespace zt {

ZT_DEFINE_OBJECT(ActionHandler, "ActionHandler")

ActionHandler::~ActionHandler() = default;
StepRefused::~StepRefused() = default;

namespace {

class FunctionHandler : public ActionHandler {
 public:
  explicit FunctionHandler(std::function<Work(const Action&, StepState&)> start) : start_(std::move(start)) {}
  Work start(const Action& action, StepState& state) override { return start_(action, state); }

 private:
  std::function<Work(const Action&, StepState&)> start_;
};

// Returns the units whose gradients an action reads, or takes away.
std::vector<int> gradients_read(const Resources& declared) {
  std::vector<int> units;
  for (const Resource& read : declared.reads) {
    if (read.type == resource::grad) units.push_back(read.index);
  }
  for (const Resource& freed : declared.frees) {
    if (freed.type == resource::grad_shard) units.push_back(freed.index);
  }
  return units;
}

// Returns "position 'blocks.1', micro-batch 3" of the action's target; empty if it has none.
std::string about(const Action& action, const ModelInfo& model) {
  const Index target = kind(action.kind).target;
  if (target == Index::none || action.target < 0) return {};
  const std::string name = owner_text(target, action.target, model);
  return action.micro_batch < 0 ? name : fmt::format("{}, micro-batch {}", name, action.micro_batch);
}

// Returns whether a rank whose step has failed starts the action: if other ranks wait for it, or if it decides what is present.
bool joins_after_failure(const Action& action, const ModelInfo& model) {
  const Role role = role_of(action);
  return role == Role::residency || role == Role::movement || role == Role::scalars || message_of(action).has_value() ||
         !communicators_of(action, model).empty();
}

// Returns whether the start of the action computes, or moves tensors between ranks.
Trace::Lane lane_of(const Action& action, const ModelInfo& model) {
  switch (role_of(action)) {
    case Role::compute:
      return model.positions[static_cast<size_t>(action.target)].exchanges ? Trace::Lane::exchange : Trace::Lane::compute;
    case Role::scalars:
    case Role::reduce:
    case Role::residency:
    case Role::transfer:
      return Trace::Lane::exchange;
    default:
      return Trace::Lane::compute;
  }
}

}  // namespace

std::shared_ptr<ActionHandler> handler_of(std::function<Work(const Action&, StepState&)> start) {
  return std::make_shared<FunctionHandler>(std::move(start));
}

Executor::Executor(RankProgram program, const ModelInfo& model, const Handlers& handlers,
                   std::function<void(int)> complete_gradient, Trace* trace, const BufferOf& buffer_of)
    : program_(std::move(program)), handlers_(handlers), complete_gradient_(std::move(complete_gradient)), trace_(trace) {
  std::vector<Resources> resources;
  for (const Action& action : program_.actions) resources.push_back(resources_of(action, model));
  for (size_t i = 0; i < resources.size(); ++i) {
    Instruction& instruction = instructions_.emplace_back(make_instruction(program_.actions[i], model));
    const bool adds_losses_only = program_.mode != Mode::train && program_.actions[i].kind == Kinds::get().norm;
    if (!adds_losses_only) instruction.gradients_read = gradients_read(resources[i]);
    instruction.about = about(program_.actions[i], model);
    instruction.joins = joins_after_failure(program_.actions[i], model);
  }
  conflicts_ = std::make_unique<ConflictTable>(std::move(resources), buffer_of);
}

Executor::~Executor() = default;
Executor::Executor(Executor&&) noexcept = default;
Executor& Executor::operator=(Executor&&) noexcept = default;

Executor::Instruction Executor::make_instruction(const Action& action, const ModelInfo& model) {
  const auto handler = handlers_.find(action.kind);
  if (handler == handlers_.end()) {
    misuse(
        "nothing runs the action {}: apply the pass that brings its handler (zero.shard for REDUCE_GRAD and UNSHARD; for a kind of "
        "a script, a zt.pass with it in `actions`), also where the program is given whole",
        action_text(action));
  }
  Instruction instruction{.handler = handler->second.get(),
                          .gradients_read = {},
                          .text = action_text(action),
                          .activity = {},
                          .about = {},
                          .trace_name = 0,
                          .wait_name = 0,
                          .lane = lane_of(action, model),
                          .waits = action.flag("wait"),
                          .joins = false};
  const std::string place = instruction.handler->place();
  instruction.activity = place.empty() ? instruction.text : fmt::format("{} at {}", kind(action.kind).name, place);
  if (trace_) {
    instruction.trace_name = trace_->intern(instruction.text);
    instruction.wait_name = trace_->intern("wait " + instruction.text);
  }
  return instruction;
}

// Calls `call`. Puts the action before the message of a Fault.
template <class Call>
void Executor::name_faults(const Instruction& instruction, Call call) {
  try {
    call();
  } catch (const Aborted&) {
    throw;
  } catch (const Fault& failure) {
    const std::string about = instruction.about.empty() ? "" : fmt::format(" ({})", instruction.about);
    throw Fault(fmt::format("action {}{}: {}", instruction.text, about, failure.what()));
  }
}

void Executor::wait_for(int entry) {
  const InFlight flight = std::move(*in_flight_[entry]);
  in_flight_[entry].reset();  // a work that failed throws only once
  const Instruction& instruction = instructions_[flight.action];
  conflicts_->release(flight.action, entry);
  const int64_t begin = now_ns();
  const Activity activity(instruction.activity);
  name_faults(instruction, [&] { flight.work.wait(); });
  if (trace_ && trace_->on()) {
    const int64_t end = now_ns();
    trace_->add(instruction.trace_name, Trace::Lane::communication, flight.begin_ns, end);
    if (end - begin > 1000) trace_->add(instruction.wait_name, Trace::Lane::exchange, begin, end);
  }
}

void Executor::wait_for_all(const std::function<bool(const InFlight&)>& is_wanted) {
  for (size_t entry = 0; entry < in_flight_.size(); ++entry) {
    if (in_flight_[entry] && is_wanted(*in_flight_[entry])) wait_for(static_cast<int>(entry));
  }
}

void Executor::start(int action, StepState& state) {
  const Instruction& instruction = instructions_[action];
  const Activity activity(instruction.activity);
  const int64_t begin = now_ns();
  Work work;
  try {
    name_faults(instruction, [&] { work = instruction.handler->start(program_.actions[action], state); });
  } catch (const PeerFailed&) {
    ++next_;  // it has communicated
    throw;
  }
  ++next_;  // from here on only the work can fail
  if (trace_ && trace_->on()) trace_->add(instruction.trace_name, instruction.lane, begin, now_ns());
  if (work.done()) return name_faults(instruction, [&] { work.wait(); });  // throws if it failed
  auto free_entry = std::ranges::find_if(in_flight_, [](const auto& flight) { return !flight.has_value(); });
  if (free_entry == in_flight_.end()) free_entry = in_flight_.emplace(in_flight_.end());
  *free_entry = InFlight{std::move(work), action, begin};
  const int entry = static_cast<int>(free_entry - in_flight_.begin());
  conflicts_->hold(action, entry);
  if (instruction.waits) wait_for(entry);
}

void Executor::wait_for_conflicts(int action) {
  for (int entry = conflicts_->conflict(action); entry >= 0; entry = conflicts_->conflict(action)) wait_for(entry);
}

void Executor::run(StepState& state, int begin, int end) {
  const int last = static_cast<int>(instructions_.size());
  if (end < 0) end = last;
  for (int i = begin; i < end; ++i) {
    next_ = i;
    wait_for_conflicts(i);
    for (const int unit : instructions_[i].gradients_read) complete_gradient_(unit);
    start(i, state);
  }
  // No later action waits for a work without resources.
  if (end == last) wait_for_all([&](const InFlight& flight) { return conflicts_->is_free(flight.action); });
}

void Executor::join_rest(StepState& state, int end) {
  const auto without_errors = [](auto call) {
    try {
      call();
      return true;
    } catch (const Fault&) {
      throw;
    } catch (const StepRefused&) {
      throw;
    } catch (const std::exception&) {  // the first failure is the one that is reported
      return false;
    }
  };
  const int last = static_cast<int>(instructions_.size());
  if (end < 0) end = last;
  for (int i = next_; i < end; ++i) {
    if (!instructions_[i].joins) continue;
    // A work that has failed must not keep the action from its start, for which others wait.
    while (!without_errors([&] { wait_for_conflicts(i); })) {
    }
    without_errors([&] { run(state, i, i + 1); });
  }
  next_ = std::max(next_, end);
  while (end == last && !without_errors([&] { drain(); })) {
  }
}

void Executor::drain() {
  wait_for_all([](const InFlight&) { return true; });
}

}  // namespace zt
