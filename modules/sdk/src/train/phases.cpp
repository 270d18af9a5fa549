#include "zt/train/phases.h"

#include "by_hand.h"
#include "options_check.h"
#include "store/away_data.h"
#include "zt/base/error.h"

namespace zt {

TrainerPhases::TrainerPhases(Store& store, TrainerRuns* running)
    : store_(store), running_(running), away_(std::make_unique<AwayData>(store)) {}

TrainerPhases::~TrainerPhases() = default;

// When the ranks have compared what they do, none reads memory that another one gives back.
void TrainerPhases::evict(const std::set<TrainerData>& what, Tier to, const Pass& places) {
  TrainerRuns& running = unless_dry(running_);
  running.by_hand.refuse("trainer:evict");
  Health& health = running.runs.health();
  health.require_alive();
  running.runs.drain();
  Facts facts{{"the tier", word_of(to)}};
  for (const TrainerData data : what) facts.emplace_back("data", word_of(data));
  check_alike(facts, store_.plan().world(), "trainer:evict takes other data out of memory: they would wait for each other");
  health.require_sound();
  if (what.empty()) misuse("trainer:evict takes optimizer, gradients or parameters out of memory: name some of them");
  health.require_here("trainer:evict", what);
  if (to != Tier::file && store_.state().links->device().is_cpu())
    misuse("trainer:evict: this rank computes on the CPU, whose memory is the host's: give to = \"nvme\" and a folder");
  away_->evict(what, to, running.runs.parts().gradients.more_buffers(),
               [&](const HomeNeeds& needs) { return places.make_homes(needs); });
  std::set<TrainerData> away = health.away();
  away.insert(what.begin(), what.end());
  health.set_away(std::move(away));
}

void TrainerPhases::fetch() {
  Health& health = unless_dry(running_).runs.health();
  health.require_alive();
  if (health.away().empty()) return;
  away_->fetch();
  health.set_away({});
}

void TrainerPhases::correct(std::map<std::string, int64_t>& bytes) const {
  away_->correct(bytes);
}

}  // namespace zt
