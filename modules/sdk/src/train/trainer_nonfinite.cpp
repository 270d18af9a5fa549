// What was not finite: the step's forwards and backwards run once more, and every gradient is looked at when it is made.
#include <ATen/ops/isfinite.h>

#include <cmath>
#include <tuple>

#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "zt/base/error.h"
#include "zt/process/log.h"
#include "zt/train/trainer.h"

namespace zt {

namespace {

// The first value or gradient on one rank that is not finite.
struct Place {
  int64_t micro_batch = -1;  // -1: there is none
  int64_t action = 0;
  std::string what;
};

Value to_value(const Place& place) {
  return Value::List{place.micro_batch, place.action, place.what};
}

// Of the places on `ranks`, each as a Value, the earliest in words.
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

bool is_finite(const at::Tensor& tensor) {
  return tensor.isfinite().all().item<bool>();
}

}  // namespace

// Collective over the axes of NORM: their ranks know that something is not finite.
std::string Trainer::place_of_nonfinite() {
  Executor& running = activate(Mode::train);
  const Kinds& kinds = Kinds::get();
  const auto& actions = running.program().actions;
  const auto is_wanted = [&](KindId id) {  // a script's own actions are not done twice
    return id == kinds.count || id == kinds.forward || id == kinds.recompute || id == kinds.backward || id == kinds.unshard ||
           id == kinds.reshard || id == kinds.reduce_grad;
  };
  const bool is_by_hand = normalisation_->is_by_hand;
  Place place;
  compute_->begin(given_[0], Mode::train, spec_->micro_batches(), is_by_hand ? 0 : first_sample(given_[0]));
  int micro_batch = -1;
  for (int i = 0; i < static_cast<int>(actions.size()) && actions[i].kind != kinds.norm; ++i) {
    const Action& action = actions[i];
    if (!is_wanted(action.kind) || (is_by_hand && action.kind == kinds.count)) continue;
    if (is_by_hand && action.kind == kinds.forward && action.micro_batch != micro_batch)
      begin_hand_micro_batch(micro_batch = action.micro_batch);
    running.run(state_, i, i + 1);
    if (place.micro_batch >= 0) continue;
    std::string what;
    if (action.kind == kinds.forward) {
      for (const LossSum& term : compute_->losses()) {
        if (!std::isfinite(term.sum)) what = fmt::format("the {}", term.name);
      }
    } else if (action.kind == kinds.backward) {
      const int param = compute_->gradients().find(action.target, [](const at::Tensor& sum) { return !is_finite(sum); });
      if (param >= 0) what = fmt::format("the gradient of '{}'", state_.model->params[param].name);
    }
    if (!what.empty()) place = {action.micro_batch, i, what};
  }
  running.drain();
  const auto norm = std::ranges::find(actions, kinds.norm, &Action::kind);
  const auto axes = norm == actions.end() ? std::vector<std::string>{} : norm->axes();
  if (axes.empty()) return earliest({to_value(place)}, {spec_->coord().rank});
  const Coord coord = spec_->coord();
  return earliest(state_.comm(axes).all_gather_values(to_value(place)), coord.shape.group(coord.rank, axes));
}

// The optimizer left everything as it was.
void Trainer::skip_step() {
  const bool ends = options_.on_nonfinite.value_or(loss_scale_ ? OnNonfinite::skip : OnNonfinite::error) == OnNonfinite::error;
  const World world = place();
  if (!ends && loss_scale_ && loss_scale_->is_dynamic()) {
    log(LogLevel::info, world,
        fmt::format("step {} is skipped: an overflow at loss scale {}; the next is run at {}", state_.step, state_.loss_scale,
                    loss_scale()));
    return;
  }
  const double loss = state_.loss, norm = state_.grad_norm;
  const std::string where = place_of_nonfinite();
  const std::string text =
      message("step {}{}: the loss is {} and the gradient norm {}{}", state_.step, ends ? "" : " is skipped", loss, norm,
              where.empty() ? "" : fmt::format("; the first thing that is not finite is {}", where));
  if (ends) fault("{}: lower the learning rate, clip the gradient, or give on_nonfinite = \"skip\"", text);
  if (world.rank == 0) log(LogLevel::warn, world, text);
}

}  // namespace zt
