#include "zt/train/phases.h"

#include <algorithm>

#include "by_hand.h"
#include "options_check.h"
#include "store/away_data.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

std::string names_of(const std::set<TrainerData>& what) {
  std::vector<std::string> names;
  for (const TrainerData data : what) names.push_back(word_of(data));
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_request(const TrainerPhases::Request& request, const Plan& plan, const Health& health, at::Device device) {
  if (request.what.empty()) misuse("trainer:evict takes optimizer, gradients or parameters out of memory: name some of them");
  for (const TrainerData data : request.what) {
    if (health.away().contains(data))
      misuse("trainer:evict: {} is away already: leave it out, or call trainer:fetch before", word_of(data));
    if (data != TrainerData::parameters && !plan.trains())
      misuse("trainer:evict: this trainer has no optimizer, so it has no {}: take parameters",
             data == TrainerData::optimizer ? "optimizer state" : "gradients");
  }
  if (request.to != Tier::file && device.is_cpu())
    misuse("trainer:evict: this rank computes on the CPU, whose memory is the host's: give to = \"nvme\" and a folder");
}

}  // namespace

TrainerPhases::TrainerPhases(Store& store, TrainerRuns* running)
    : store_(store), running_(running), away_(std::make_unique<AwayData>(store)) {}

TrainerPhases::~TrainerPhases() = default;

// When the ranks have compared what they do, none reads memory that another one gives back.
void TrainerPhases::evict(const std::function<Request()>& ask) {
  if (!running_) return static_cast<void>(ask());
  Communicator* world = store_.plan().world();
  Health& health = running_->runs.health();
  health.require_alive();  // within a step the ranks are not in one place
  Request request;
  run_together(world, [&] {
    running_->by_hand.refuse("trainer:evict");
    health.require_sound();
    request = ask();
    check_request(request, store_.plan(), health, store_.state().links->device());
    running_->runs.drain();
  });
  check_alike({{"what trainer:evict takes", names_of(request.what)}, {"where trainer:evict takes it", word_of(request.to)}},
              world, "they would wait for each other");
  away_->evict(request.what, request.to, running_->runs.parts().gradients.more_buffers(),
               [&](const HomeNeeds& needs) { return request.places->make_homes(needs); });
  health.set_away(away_->data());
}

void TrainerPhases::fetch(const std::function<std::set<TrainerData>()>& ask) {
  if (!running_) return static_cast<void>(ask());
  Communicator* world = store_.plan().world();
  Health& health = running_->runs.health();
  health.require_alive();
  std::set<TrainerData> what;
  run_together(world, [&] {
    what = ask();
    for (const TrainerData data : what) {
      if (!health.away().contains(data)) misuse("trainer:fetch: {} is in memory: leave it out", word_of(data));
    }
  });
  if (what.empty()) what = health.away();
  check_alike({{"what trainer:fetch brings back", names_of(what)}}, world, "they would wait for each other");
  if (what.empty()) return;
  away_->fetch(what);
  health.set_away(away_->data());
}

bool TrainerPhases::use_adapters(bool wanted) {
  const bool before = store_.state().adapters;
  if (!running_) return before;
  Communicator* world = store_.plan().world();
  running_->runs.health().require_alive();
  run_together(world, [&] {
    running_->by_hand.refuse("trainer:with_adapters");
    const Params& params = store_.plan().program().model()->params();
    if (std::ranges::none_of(params, [](const auto& param) { return param->is_adapter; }))
      misuse("trainer:with_adapters: the model has no adapters: give nn.gpt, or one of its layers, the option `lora`");
  });
  check_alike({{"trainer:with_adapters", wanted ? "true" : "false"}}, world, "they would compute with other matrices");
  restore_adapters(wanted);
  return before;
}

void TrainerPhases::restore_adapters(bool before) {
  store_.state().adapters = before;
}

void TrainerPhases::correct(std::map<std::string, int64_t>& bytes) const {
  away_->correct(bytes);
}

std::string TrainerPhases::text() const {
  const std::set<TrainerData> away = away_->data();
  if (away.empty()) return {};
  std::map<std::string, int64_t> there;
  away_->bytes().add_to(there);
  std::vector<std::string> parts;
  for (const auto& [tier, bytes] : there) parts.push_back(fmt::format("{} in {}", human_bytes(bytes), tier));
  return fmt::format("away      {}, until trainer:fetch: {}\n", names_of(away), fmt::join(parts, ", "));
}

}  // namespace zt
