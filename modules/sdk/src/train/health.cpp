#include "health.h"

#include "zt/base/error.h"

namespace zt {

void Health::require_alive() const {
  if (is_busy_)
    misuse(
        "a step of this trainer is under way: its layers, losses and actions must not call the trainer. Call it before or after the "
        "step");
  require_not_lost();
}

void Health::require_not_lost() const {
  if (!lost_.empty())
    fault(
        "this trainer cannot be used any more, because a step has ended with: {}. Run the script again: it resumes from its last "
        "checkpoint",
        lost_);
}

void Health::require_sound() const {
  require_not_lost();
  if (!half_changed_.empty()) misuse("{}", half_changed_);
}

void Health::set_half_loaded(const std::string& why) {
  half_changed_ = fmt::format(
      "a load has failed and may have changed a part of the parameters and optimizer state: load a complete checkpoint before "
      "anything else. It failed with: {}",
      why);
}

void Health::set_half_updated(int64_t step, const std::string& why) {
  half_changed_ = fmt::format(
      "step {} has failed between its updates, so parameters and optimizer state are of two steps: load a checkpoint before "
      "anything else. It failed with: {}",
      step, why);
}

}  // namespace zt
