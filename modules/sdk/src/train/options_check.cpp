#include "options_check.h"

#include <algorithm>

#include "plan/plan.h"
#include "zt/base/error.h"

namespace zt {

namespace {

void check_optimizer(const Optimizer& optimizer, const ModelInfo& model) {
  if (!model.params.empty() && std::ranges::none_of(model.params, &ParamInfo::trainable)) {
    misuse(
        "all parameters of the model are frozen, so the optimizer has nothing to train: freeze fewer, or make the trainer without an "
        "optimizer, which evaluates and infers");
  }
  if (optimizer.scope() != Scope::element) {
    misuse("the optimizer {} needs whole tensors, which sharded units do not hold yet: use one that works element by element",
           optimizer.kind());
  }
  optimizer.check(model);
}

// Without an optimizer, what it alone would use is refused.
void check_unused(const TrainerOptions& options) {
  const auto refuse = [](const char* option) {
    misuse("a trainer without an optimizer runs no training steps, so {} has no effect: leave it out, or give an optimizer",
           option);
  };
  if (options.schedule) refuse("a schedule");
  if (options.clip > 0) refuse("clip");
  if (options.on_nonfinite) refuse("on_nonfinite");
  if (options.loss_scale) refuse("fp16");
}

}  // namespace

void check_options(const Program& program, const TrainerOptions& options) {
  if (!options.optimizer) return check_unused(options);
  const bool is_fp16 = program.precision().params == at::kHalf;
  if (options.loss_scale && !is_fp16) {
    misuse("a loss scale is for fp16, whose small gradients become zero; this program computes in {}: leave fp16 = {{...}} out",
           float_type_name(program.precision().params));
  }
  const bool is_dynamic = !options.loss_scale || options.loss_scale->is_dynamic();
  if (is_fp16 && is_dynamic && options.on_nonfinite == OnNonfinite::error) {
    misuse("a dynamic loss scale is found by steps that overflow: give on_nonfinite = \"skip\", or a constant fp16.loss_scale");
  }
  check_optimizer(*options.optimizer, program.info());
}

void require_optimizer(const Plan& plan, const char* call) {
  if (plan.trains()) return;
  misuse(
      "trainer:{}: this trainer has no optimizer, so it runs no training steps: give zt.trainer the option `optimizer` to train",
      call);
}

TrainerRuns& unless_dry(TrainerRuns* running) {
  if (running) return *running;
  misuse(
      "this trainer is dry, as in a plan: no tensor has values, so only its first step is planned; guard other calls by `if not "
      "zt.world.dry`");
}

}  // namespace zt
