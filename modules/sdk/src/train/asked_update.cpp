#include "asked_update.h"

#include <ATen/ops/full.h>

#include <algorithm>

#include "plan/plan_links.h"

namespace zt {

namespace {

// Returns whether all ranks that run the program pass true. Collective over them.
bool all_want(const StepState& state, const std::vector<std::string>& axes, bool mine) {
  if (axes.empty()) return mine;
  const at::Tensor least = at::full({1}, mine ? 1 : 0, at::kLong);
  state.links->control(axes).all_reduce(least, least, ReduceOp::min).synchronize();
  return least.item<int64_t>() == 1;
}

}  // namespace

bool run_asking(Executor& running, ProgramRuns& runs, const Plan& plan, const UpdateIf& update_if) {
  const RankProgram& program = running.program();
  StepState& state = runs.state();
  const auto norm = std::ranges::find(program.actions, Kinds::get().norm, &Action::kind);
  const int begin_of_updates = static_cast<int>(norm - program.actions.begin()) + 1;
  running.run(state, 0, begin_of_updates);
  running.drain();  // the norm is known
  std::exception_ptr failure;
  bool is_wanted = false, is_declined = false;
  try {
    is_wanted = update_if(state.is_finite);
  } catch (...) {
    failure = std::current_exception();
    state.failure = describe_failure(failure);
  }
  runs.agree_on_failure(program);
  const bool has_failed = failure || !state.known_failure.empty();
  if (has_failed || !all_want(state, axes_of_run(plan, program), is_wanted)) {
    is_declined = state.is_finite;
    state.is_finite = false;  // so that no rank updates
  }
  if (failure) std::rethrow_exception(failure);
  running.run(state, begin_of_updates);
  return is_declined;
}

}  // namespace zt
