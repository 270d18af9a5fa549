// Whether a trainer's values may be used.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "zt/base/error.h"
#include "zt/train/phases.h"

namespace zt {

inline const std::set<TrainerData> kAllTrainerData{TrainerData::optimizer, TrainerData::gradients, TrainerData::parameters};

// Threads: the rank's thread only.
class Health {
 public:
  // Throws if the last failure has left parameters that must not be used.
  void require_sound() const {
    require_not_lost();
    if (!half_changed_.empty()) misuse("{}", half_changed_);
  }
  // Throws within a step, and after a Fault; allows a load.
  void require_alive() const {
    if (is_busy_)
      misuse(
          "a step of this trainer is under way: its layers, losses and actions, and functions given to trainer:infer, must not call "
          "the trainer. Call it before or after the step");
    require_not_lost();
  }

  // Throws Misuse if some of these data are out of memory.
  void require_here(const char* call, const std::set<TrainerData>& needed = kAllTrainerData) const {
    for (const TrainerData data : needed) {
      if (away_.contains(data))
        misuse("{} needs {}, which trainer:evict has taken out of memory: call trainer:fetch before", call, text_of(data));
    }
  }
  void set_away(std::set<TrainerData> away) { away_ = std::move(away); }
  const std::set<TrainerData>& away() const { return away_; }

  // The parameters are those of a complete step or load.
  void set_sound() {
    half_changed_.clear();
    is_half_transferred_ = false;
  }
  // Refuse all further use but a load: after a step that failed between its updates, and after a load that failed and may have
  // changed a part of the trainer.
  void set_half_updated(int64_t step, const std::string& why) {
    is_half_transferred_ = false;
    half_changed_ = fmt::format(
        "step {} has failed between its updates, so parameters and optimizer state are of two steps: load a checkpoint before "
        "anything else. It failed with: {}",
        step, why);
  }
  void set_half_loaded(const std::string& why) {
    is_half_transferred_ = false;
    half_changed_ = fmt::format(
        "a load has failed and may have changed a part of the parameters and optimizer state: load a complete checkpoint before "
        "anything else. It failed with: {}",
        why);
  }
  // Refuse all further use but a load and a complete transfer, after one that failed and may have changed a part.
  void set_half_transferred(const std::string& why) {
    is_half_transferred_ = true;
    half_changed_ = fmt::format(
        "a transfer to this trainer has failed and may have set a part of its parameters: make a complete one, or load a "
        "complete checkpoint, before anything else. It failed with: {}",
        why);
  }
  bool is_half_transferred() const { return is_half_transferred_; }
  // Ends all further use, after a Fault.
  void lose(const std::string& why) { lost_ = why; }

  // Calls `body`. A Fault ends all further use.
  void guard(const std::function<void()>& body) {
    try {
      body();
    } catch (const Fault& error) {
      lose(error.what());
      throw;
    }
  }

  const std::string& half_changed() const { return half_changed_; }  // why only a load is allowed; empty: all is

  // While it lives, calls from within (by layers, losses and actions) are refused.
  class Busy {
   public:
    explicit Busy(Health& health) : health_(health), before_(std::exchange(health.is_busy_, true)) {}
    ~Busy() { health_.is_busy_ = before_; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Health& health_;
    bool before_;
  };

 private:
  void require_not_lost() const {
    if (!lost_.empty())
      fault(
          "this trainer cannot be used any more, because a step has ended with: {}. Run the script again: if it "
          "saves checkpoints, it resumes from the last one",
          lost_);
  }

  static const char* text_of(TrainerData data) {
    return data == TrainerData::optimizer ? "the optimizer's state" : data == TrainerData::gradients ? "gradients" : "parameters";
  }

  bool is_busy_ = false;
  std::set<TrainerData> away_;
  std::string half_changed_;
  bool is_half_transferred_ = false;
  std::string lost_;  // the Fault that ended all use; empty: none
};

}  // namespace zt
