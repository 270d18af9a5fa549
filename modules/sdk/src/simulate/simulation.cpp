#include "zt/simulate/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "zt/base/tensor.h"

namespace zt {

namespace {

double share(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

// 41234 -> "41.2 k"
std::string count_text(double value) {
  constexpr std::array<const char*, 5> kUnits{"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{:.{}f}{}", value, value < 100 ? 1 : 0, kUnits[unit]);
}

std::string rate_text(const Simulation& simulation) {
  const StepWork& work = simulation.work;
  if (simulation.seconds <= 0 || work.samples == 0) return "";
  const auto rate = [&](int64_t count, const char* what) {
    const double all = static_cast<double>(count) / simulation.seconds;
    return fmt::format("{} {}/s, {} per rank", count_text(all), what, count_text(all / simulation.world_size));
  };
  std::string text = "rate      " + (work.tokens > 0 ? rate(work.tokens, "tokens") : rate(work.samples, "samples"));
  if (simulation.mfu() > 0) text += fmt::format("; {:.1f} % MFU, of the machine's peak", 100 * simulation.mfu());
  return text + "\n";
}

}  // namespace

void set_bubbles(SimulatedRank& rank, double seconds) {
  double first = -1, last = 0, inside = 0;
  for (const SimulatedAction& action : rank.actions) {
    rank.busy += action.end - action.begin;
    if (action.role != Role::compute || action.end == action.begin) continue;
    if (first < 0) first = action.begin;
    last = std::max(last, action.end);
  }
  for (const SimulatedAction& action : rank.actions) {
    if (action.begin >= first && action.end <= last) inside += action.end - action.begin;
  }
  rank.span_bubble = first < 0 ? 0 : last - first - inside;
  rank.barrier_bubble = seconds - rank.busy;
}

double Simulation::mfu() const {
  return work.peak > 0 && seconds > 0 ? work.flops / seconds / work.peak : 0;
}

std::string Simulation::text() const {
  std::string table = fmt::format("step      {:.3f} ms, simulated for {} with the costs '{}'\n", seconds * 1e3, mesh, costs);
  table += rate_text(*this);
  if (!assumed.empty()) table += fmt::format("assumes   {}\n", assumed);
  table += fmt::format("{:<16} {:>10} {:>16} {:>16} {:>12}  {}\n", "ranks", "busy ms", "span bubble", "barrier bubble", "memory",
                       "most memory in");
  for (const SimulatedRank& rank : ranks) {
    table += fmt::format("{:<16} {:>10.3f} {:>8.3f} ({:>4.1f}%) {:>8.3f} ({:>4.1f}%) {:>12}  {}\n", rank.name, rank.busy * 1e3,
                         rank.span_bubble * 1e3, share(rank.span_bubble, seconds), rank.barrier_bubble * 1e3,
                         share(rank.barrier_bubble, seconds), human_bytes(rank.peak_bytes), rank.peak_action);
  }
  return table;
}

std::string Simulation::trace() const {
  auto events = nlohmann::json::array();
  const auto add = [&](const std::string& name, const SimulatedRank& rank, int lane, double begin, double end) {
    if (end > begin)
      events.push_back({{"name", name},
                        {"ph", "X"},
                        {"pid", rank.ranks.front()},
                        {"tid", lane},
                        {"ts", begin * 1e6},
                        {"dur", (end - begin) * 1e6}});
  };
  for (const SimulatedRank& rank : ranks) {
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", rank.ranks.front()}, {"args", {{"name", "ranks " + rank.name}}}});
    for (const SimulatedAction& action : rank.actions) {
      add(action.text, rank, 0, action.begin, action.end);
      add(action.text, rank, 1, action.transfer_begin, action.transfer_end);
      events.push_back({{"name", "memory"},
                        {"ph", "C"},
                        {"pid", rank.ranks.front()},
                        {"ts", action.end * 1e6},
                        {"args", {{"bytes", rank.constant_bytes + action.held_bytes}}}});
    }
  }
  return nlohmann::json{{"traceEvents", std::move(events)}}.dump();
}

}  // namespace zt
