#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "execute/movement/move_slices.h"
#include "runner.h"

namespace zt {

namespace {

// The first value or gradient on one rank that is not finite.
struct NonfinitePlace {
  int64_t micro_batch = -1;  // -1: there is none
  int64_t action = 0;
  std::string what;
};

// Returns the earliest of the places on `ranks` in words; empty if no rank found one. `places`: lists of their fields.
std::string earliest(const std::vector<Value>& places, const std::vector<int>& ranks) {
  using Key = std::tuple<int64_t, int64_t>;
  std::string text;
  Key least;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& fields = *places[i].get_if<Value::List>();
    const Key key{*fields[0].get_if<int64_t>(), *fields[1].get_if<int64_t>()};
    if (std::get<0>(key) < 0 || (!text.empty() && key >= least)) continue;
    least = key;
    text = fmt::format("{} on rank {} in micro-batch {}", *fields[2].get_if<std::string>(), ranks[i], std::get<0>(key));
  }
  return text;
}

// Returns the name of the first output of the forward that is not finite, else an empty string. The outputs of an exchange may
// not be there yet.
std::string nonfinite_output(const Action& action, ProgramRuns& runs) {
  const PositionInfo& info = runs.state().model->positions[action.target];
  if (runs.parts().layers.exchange(action.target)) return {};
  for (int i = 0; i < static_cast<int>(info.outputs.size()); ++i) {
    const at::Tensor& value = runs.state().values.get({action.target, i}, action.micro_batch);
    const int64_t row = value.defined() ? first_nonfinite_row(value) : -1;
    if (row < 0) continue;
    const bool has_samples = value.dim() > 0 && value.size(0) == samples_of(runs.parts().batches.fields(action.micro_batch));
    return fmt::format("the output '{}' of layer '{}'{}", info.outputs[i].name, info.name,
                       has_samples ? fmt::format(" in sample {}", row) : "");
  }
  return {};
}

// Returns the name of what the action has computed if it is not finite, else an empty string.
std::string nonfinite_result(const Action& action, ProgramRuns& runs) {
  const Kinds& kinds = Kinds::get();
  if (action.kind == kinds.forward) {
    if (std::string watched = runs.parts().search.take(); !watched.empty()) return watched;
    if (std::string output = nonfinite_output(action, runs); !output.empty()) return output;
    for (const LossSum& term : runs.parts().stats.losses()) {
      if (!std::isfinite(term.sum)) return fmt::format("the {}", term.term.name);
    }
  } else if (action.kind == kinds.backward || action.kind == kinds.weight_grad) {
    const int param =
        runs.parts().gradients.find(action.target, [](const at::Tensor& sum) { return first_nonfinite_row(sum) >= 0; });
    if (param >= 0) return fmt::format("the gradient of '{}'", runs.state().model->params[param].name);
  }
  return {};
}

NonfinitePlace replay(ProgramRuns& runs, const Plan& plan) {
  const Kinds& kinds = Kinds::get();
  Executor& running = runs.activate(Mode::train);
  const auto& actions = running.program().actions;
  const bool is_by_hand = runs.parts().scale.is_by_hand();
  const std::vector<Batch> given = runs.parts().batches.all();
  runs.layers().begin(is_by_hand ? std::vector<Batch>{} : given, running.program(), plan.first_sample(samples_of(given)));
  runs.parts().search.begin();
  NonfinitePlace place;
  int micro_batch = -1;
  for (int i = 0; i < static_cast<int>(actions.size()) && actions[i].kind != kinds.norm; ++i) {
    const Action& action = actions[i];
    const Role role = role_of(action);  // actions of unknown purpose and updates must not be done twice
    if (role == Role::other || role == Role::update || (is_by_hand && action.kind == kinds.count)) continue;
    if (is_by_hand && action.kind == kinds.forward && action.micro_batch != micro_batch) {
      micro_batch = action.micro_batch;
      runs.set_micro_batch(micro_batch, given.at(static_cast<size_t>(micro_batch)));
    }
    running.run(runs.state(), i, i + 1);
    if (place.micro_batch >= 0) continue;
    if (const std::string what = nonfinite_result(action, runs); !what.empty()) place = {action.micro_batch, i, what};
  }
  running.drain();
  drop_slices(runs.state());  // updates change them, and none has run
  runs.parts().search.end();
  return place;
}

}  // namespace

std::string find_nonfinite(ProgramRuns& runs, const Plan& plan) {
  const NonfinitePlace place = replay(runs, plan);
  const auto& actions = plan.main().actions;
  const auto norm = std::ranges::find(actions, Kinds::get().norm, &Action::kind);
  const auto axes = norm == actions.end() ? std::vector<std::string>{} : norm->axes();
  const Coord coord = plan.program().coord();
  const Value mine = Value::List{place.micro_batch, place.action, place.what};
  if (axes.empty()) return earliest({mine}, {coord.rank});
  return earliest(runs.state().links->control(axes).all_gather_values(mine, "looks for numbers that are not finite"),
                  coord.shape.group(coord.rank, axes));
}

}  // namespace zt
