// What a person wants to know before anything runs: model, actions, bytes on the wire, bytes held.
#include <algorithm>
#include <map>
#include <set>

#include "execute/compute.h"
#include "plan/rank_plan.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/train/trainer.h"

namespace zt {

namespace {

// Memory that several tensors may share counts once.
class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::set<const c10::StorageImpl*> seen_;
  int64_t bytes_ = 0;
};

}  // namespace

// What is held, where anything is.
std::map<std::string, int64_t> Trainer::measure() const {
  Storages parameters, master, gradients, optimizer;
  int64_t shared = 0;  // this rank's part of memory that the node has once
  for (const Unit& unit : state_.units) {
    if (unit.node_shared) shared += static_cast<int64_t>(unit.shard.nbytes());
    else
      for (const auto& tensor : {unit.full, unit.shard}) parameters.add(tensor);
    if (unit.owns_master()) master.add(unit.master);
    for (const auto& tensor : {unit.grad, unit.grad_shard, unit.grad_sum}) gradients.add(tensor);
    for (const auto& [name, buffer] : unit.state) optimizer.add(buffer);
  }
  return {{"parameters", parameters.bytes() + shared},
          {"master", master.bytes()},
          {"gradients", gradients.bytes() + compute_->gradients().extra_bytes()},
          {"optimizer", optimizer.bytes()},
          {"buckets", state_.wire.defined() ? static_cast<int64_t>(state_.wire.nbytes()) : 0},
          {"activations", activations_.peak_bytes()}};
}

std::vector<MemoryLine> Trainer::memory() {
  if (predicted_activations_ < 0 && !shapes_.empty()) {
    try {
      predicted_activations_ = run_on_meta(Mode::train, shapes_);
    } catch (const Misuse&) {
      shapes_.clear();  // a layer's operator does not know meta: `ztoolkit plan` says which
    }
  }
  std::vector<MemoryLine> lines;
  for (const auto& [kind, bytes] : plan_->held) lines.push_back({kind, bytes});
  lines.push_back({"activations", predicted_activations_});
  const auto held = options_.dry ? std::map<std::string, int64_t>() : measure();
  MemoryLine total{"total", 0, 0};
  for (MemoryLine& line : lines) {
    if (const auto found = held.find(line.kind); found != held.end()) line.measured = found->second;
    // A sum of which a part is not known is not known.
    total.predicted = line.predicted < 0 || total.predicted < 0 ? -1 : total.predicted + line.predicted;
    total.measured = line.measured < 0 || total.measured < 0 ? -1 : total.measured + line.measured;
  }
  lines.push_back(total);
  return lines;
}

std::string Trainer::report() {
  const Coord coord = spec_->coord();
  std::string actions;
  for (const auto& [name, count] : plan_->actions) actions += fmt::format("{}{} {}", actions.empty() ? "" : ", ", count, name);

  std::string text = spec_->model()->summary();
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += fmt::format("mesh      {}\n", coord.shape.axes().empty() ? "one rank" : coord.shape.text());
  for (const auto& pass : spec_->passes()) text += fmt::format("pass      {} ({})\n", pass->name(), phase_name(pass->phase()));
  text += fmt::format("step      {} micro-batches, {} actions: {}\n", spec_->micro_batches(), program(Mode::train).actions.size(),
                      actions);
  text += fmt::format("precision {}\n", program(Mode::train).precision.text());
  for (const auto& [name, bytes] : plan_->sent)
    text += fmt::format("wire      {} {} sent a step and rank\n", name, human_bytes(bytes));
  const bool is_shared = std::any_of(state_.units.begin(), state_.units.end(), [](const Unit& unit) { return unit.node_shared; });
  if (is_shared)
    text += "memory    parameters are held once a node, a part counted for each rank (zero.shard{node_shared = false}: not so)\n";
  for (const MemoryLine& line : memory()) {
    if (line.predicted >= 0) text += fmt::format("memory    {:<12} {} a rank\n", line.kind, human_bytes(line.predicted));
  }
  return text;
}

}  // namespace zt
