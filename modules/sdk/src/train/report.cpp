#include "report.h"

#include <algorithm>
#include <set>

#include "plan/plan_table.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"

namespace zt {

int64_t Report::predict_activations(const std::vector<Batch>& micro_batches) {
  if (predicted_ >= 0 && has_shapes_of(predicted_for_, micro_batches)) return predicted_;
  predicted_ = -1;
  predicted_away_ = {};
  predicted_for_ = micro_batches;
  const Rehearsal rehearsed = plan_->rehearsal(micro_batches);
  sent_ = sent_by_kind(plan_->rank(), plan_->main(), rehearsed, plan_->model());
  predicted_away_ = rehearsed.most_bytes_away();
  return predicted_ = rehearsed.peak_bytes();
}

// Returns the bytes that are sent by kind of action and, if a batch is known, of layer. Otherwise names the layers that send.
std::string Report::wire_text() const {
  std::string text;
  for (const auto& [name, bytes] : predicted_ >= 0 ? sent_ : plan_->rank().sent)
    text += fmt::format("wire      {} {} sent per step and rank\n", name, human_bytes(bytes));
  if (predicted_ >= 0) return text;
  const ModelInfo& model = plan_->model();
  const std::vector<bool> runs = positions_run(plan_->main(), model);
  std::set<std::string> senders;
  for (size_t p = 0; p < model.positions.size(); ++p) {
    const PositionInfo& position = model.positions[p];
    if (runs[p] && plan_->program().coord().size(position.axes) > 1) senders.insert(position.kind);
  }
  if (!senders.empty())
    text +=
        fmt::format("wire      {}: what they send depends on the batch; trainer:plan(batch) and a report after a step have it\n",
                    fmt::join(senders, ", "));
  return text;
}

// Returns which promises about numbers the model's layers give up, each once.
std::string Report::given_up_text() const {
  std::set<std::string> lines;
  for (const NamedLayer& position : plan_->layers()) {
    for (const std::string& sentence : extras_of(*position.layer).gives_up())
      lines.insert(fmt::format("gives up  {}: {}\n", position.layer->kind(), sentence));
  }
  return fmt::format("{}", fmt::join(lines, ""));
}

std::vector<MemoryLine> Report::memory(const std::map<std::string, int64_t>& measured, const std::vector<Batch>& shapes) {
  if (!shapes.empty() && !has_shapes_of(predicted_for_, shapes)) {
    try {
      predict_activations(shapes);
    } catch (const Misuse&) {  // a layer's operator does not support device meta: `ztoolkit plan` says which
    }
  }
  std::vector<MemoryLine> lines;
  for (const auto& [kind, bytes] : plan_->rank().held) lines.push_back({kind, bytes});
  lines.push_back({"activations", predicted_});
  MemoryLine total{"total", 0, 0};
  for (MemoryLine& line : lines) {
    if (const auto found = measured.find(line.kind); found != measured.end()) line.measured = found->second;
    // A sum is known only if all of its parts are.
    total.predicted = line.predicted < 0 || total.predicted < 0 ? -1 : total.predicted + line.predicted;
    total.measured = line.measured < 0 || total.measured < 0 ? -1 : total.measured + line.measured;
  }
  lines.push_back(total);
  // Outside of the device's memory, so no part of the total.
  std::map<std::string, int64_t> elsewhere(plan_->rank().elsewhere.begin(), plan_->rank().elsewhere.end());
  predicted_away_.add_to(elsewhere);
  for (const char* tier : {"host", "files"}) {
    if (measured.contains(tier)) elsewhere.try_emplace(tier, 0);  // taken there between steps
  }
  for (const auto& [tier, bytes] : elsewhere) {
    const auto found = measured.find(tier);
    lines.push_back({tier, bytes, found == measured.end() ? -1 : found->second});
  }
  return lines;
}

std::string Report::text(const std::vector<MemoryLine>& memory) const {
  const Program& program = plan_->program();
  const Coord coord = program.coord();
  const RankProgram& main = plan_->main();
  std::string actions;
  for (const auto& [name, count] : plan_->rank().actions)
    actions += fmt::format("{}{} {}", actions.empty() ? "" : ", ", count, name);

  std::string text = summary(plan_->model());
  text += fmt::format("mesh      {}\n", coord.shape.axes().empty() ? "one rank" : coord.shape.text());
  for (const auto& pass : program.passes()) text += fmt::format("pass      {} ({})\n", pass->name(), phase_name(pass->phase()));
  static constexpr const char* kCalls[] = {"step", "evaluate", "infer"};  // by Mode
  text += fmt::format("{:<9} {}, {}: {}\n", kCalls[static_cast<size_t>(main.mode)], counted(main.micro_batches, "micro-batch"),
                      counted(static_cast<int64_t>(main.actions.size()), "action"), actions);
  text += fmt::format("precision {}\n", main.precision.text());
  text += given_up_text() + wire_text();
  for (const std::string& sentence : assumptions_of(main, *plan_)) text += fmt::format("assumes   {}\n", sentence);
  if (std::ranges::any_of(plan_->rank_units().units, &Unit::is_node_shared))
    text +=
        "memory    parameters are held once per node; each rank counts its part (zero.shard{node_shared = false} turns this off)\n";
  for (const MemoryLine& line : memory) {
    if (line.predicted >= 0) text += fmt::format("memory    {:<12} {} per rank\n", line.kind, human_bytes(line.predicted));
  }
  return text;
}

}  // namespace zt
