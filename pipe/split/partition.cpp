#include "partition.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/regex.h"

namespace zt::pipe {

namespace {

Partition uniform(int positions, int stages) {
  Partition begins{0};
  for (int stage = 0; stage < stages; ++stage)
    begins.push_back(begins.back() + positions / stages + (stage < positions % stages ? 1 : 0));
  return begins;
}

// Returns the first position of each block, and the end. A pipeline cuts between blocks.
std::vector<int> block_begins(const ModelInfo& model) {
  std::vector<int> begins;
  for (int p = 0; p < static_cast<int>(model.positions.size()); ++p) {
    if (!model.positions[static_cast<size_t>(p)].continues) begins.push_back(p);
  }
  begins.push_back(static_cast<int>(model.positions.size()));
  return begins;
}

// Returns the partition of positions for one of blocks.
Partition of_positions(const Partition& of_blocks, const std::vector<int>& begins) {
  Partition partition;
  for (const int block : of_blocks) partition.push_back(begins[static_cast<size_t>(block)]);
  return partition;
}

Partition uniform(const ModelInfo& model, int stages) {
  const std::vector<int> begins = block_begins(model);
  return of_positions(uniform(static_cast<int>(begins.size()) - 1, stages), begins);
}

// Cuts blocks, each as heavy as its positions together. `weights`: by position.
Partition balance_blocks(const std::vector<double>& weights, const ModelInfo& model, int stages) {
  const std::vector<int> begins = block_begins(model);
  std::vector<double> of_blocks;
  for (size_t block = 0; block + 1 < begins.size(); ++block)
    of_blocks.push_back(std::accumulate(weights.begin() + begins[block], weights.begin() + begins[block + 1], 0.0));
  return of_positions(balance(of_blocks, stages), begins);
}

// A parameter that several positions use counts at the first one.
std::vector<double> parameters_of(const ModelInfo& model) {
  std::vector<double> weights(model.positions.size(), 0);
  for (const ParamInfo& param : model.params)
    weights[static_cast<size_t>(param.positions.front())] += static_cast<double>(param.room);
  return weights;
}

std::vector<double> matches_of(const std::string& pattern, const ModelInfo& model) {
  const Regex regex(pattern, "pipe.split.partition");
  std::vector<double> weights;
  for (const PositionInfo& position : model.positions)
    weights.push_back(regex.is_found_in(position.name) || regex.is_found_in(position.kind) ? 1 : 0);
  if (std::accumulate(weights.begin(), weights.end(), 0.0) == 0) {
    std::vector<std::string> kinds;
    for (const PositionInfo& position : model.positions) {
      if (std::ranges::find(kinds, position.kind) == kinds.end()) kinds.push_back(position.kind);
    }
    misuse("pipe.split.partition: no layer's name or kind matches '{}': the kinds are {}", pattern, fmt::join(kinds, ", "));
  }
  return weights;
}

// Returns the measured seconds of each position: those of its forward and of its backward, whole or in two parts.
std::vector<double> seconds_of(const Costs& costs, const ModelInfo& model) {
  if (costs.measured.empty())
    misuse("pipe.split.partition = \"cost\" needs measured times: give costs = trainer:costs(batch), or take \"parameters\"");
  std::vector<double> weights;
  for (int p = 0; p < static_cast<int>(model.positions.size()); ++p) {
    const auto seconds = [&](KindId kind) {
      const auto found = costs.measured.find(measured_name({.kind = kind, .target = p, .micro_batch = 0}, model));
      return found == costs.measured.end() ? -1 : found->second.compute;
    };
    const Kinds& kinds = Kinds::get();
    const double forward = seconds(kinds.forward), whole = seconds(kinds.backward), inputs = seconds(kinds.input_grad);
    if (forward < 0 || (whole < 0 && inputs < 0))
      misuse("pipe.split.partition = \"cost\": the costs do not tell how long layer '{}' takes: measure them with this model",
             model.positions[static_cast<size_t>(p)].name);
    weights.push_back(forward + (whole >= 0 ? whole : inputs + std::max(0.0, seconds(kinds.weight_grad))));
  }
  return weights;
}

std::vector<int> counts_of(const Partition& begins) {
  std::vector<int> counts;
  for (size_t s = 0; s + 1 < begins.size(); ++s) counts.push_back(begins[s + 1] - begins[s]);
  return counts;
}

Partition listed(const std::vector<int>& counts, const ModelInfo& model, int stages) {
  const int positions = static_cast<int>(model.positions.size());
  if (static_cast<int>(counts.size()) != stages)
    misuse("pipe.split.partition lists {} stages, and the schedule has {}: give one number per stage", counts.size(), stages);
  Partition begins{0};
  for (const int count : counts) {
    if (count < 0) misuse("pipe.split.partition: a stage of {} positions: give 0 or more", count);
    begins.push_back(begins.back() + count);
  }
  if (begins.back() != positions)
    misuse("pipe.split.partition lists {} positions in all, and the model has {}: {{{}}} is an even cut", begins.back(),
           positions, fmt::join(counts_of(uniform(model, stages)), ", "));
  return begins;
}

// Returns the partition whose stages are as long as possible with sums of at most `most`, without empty stages if there are
// enough positions; nullopt if that takes more stages.
std::optional<Partition> within(const std::vector<double>& weights, int stages, double most) {
  const int positions = static_cast<int>(weights.size());
  Partition begins{0};
  double sum = 0;
  for (int p = 0; p < positions; ++p) {
    const double weight = weights[static_cast<size_t>(p)];
    if (weight > most) return std::nullopt;
    const int stages_left = stages - static_cast<int>(begins.size());
    const bool others_need_it = p > begins.back() && positions - p <= stages_left;
    if (sum + weight > most || others_need_it) {
      begins.push_back(p);
      sum = 0;
    }
    sum += weight;
  }
  if (static_cast<int>(begins.size()) > stages) return std::nullopt;
  begins.resize(static_cast<size_t>(stages) + 1, positions);
  return begins;
}

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Returns the smallest value that the largest sum of a stage can have, up to rounding.
double least_maximum(const std::vector<double>& weights, int stages) {
  double low = std::ranges::max(weights), high = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (within(weights, stages, low)) return low;
  for (int i = 0; i < 100 && high - low > 1e-12 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (within(weights, stages, middle) ? high : low) = middle;
  }
  return high;
}

// Finds the cut into stages that are not empty, with sums of at most `most`, whose sums are as equal as possible: the sum of
// their squares is least. Dynamic programming over the begin of the stages that are left.
class EvenCut {
 public:
  EvenCut(const std::vector<double>& weights, int stages, double most)
      : weights_(weights),
        positions_(static_cast<int>(weights.size())),
        stages_(stages),
        most_(most),
        least_(static_cast<size_t>(stages) + 1, std::vector<double>(weights.size() + 1, kUnbounded)) {}

  Partition run() {
    least_[0][weights_.size()] = 0;
    for (int left = 1; left <= stages_; ++left) {
      for (int begin = positions_ - left; begin >= 0; --begin)
        for_each_end(begin, left, [&](int, double squares) { least(left, begin) = std::min(least(left, begin), squares); });
    }
    Partition begins{0};
    for (int left = stages_; left > 0; --left) {  // of equally good ends the last one
      const int begin = begins.back();
      const double best = least(left, begin) * (1 + 1e-9);  // equal up to rounding
      int last = begin + 1;
      for_each_end(begin, left, [&](int end, double squares) {
        if (squares <= best) last = end;
      });
      begins.push_back(last);
    }
    return begins;
  }

 private:
  double& least(int left, int begin) { return least_[static_cast<size_t>(left)][static_cast<size_t>(begin)]; }

  // Calls visit(end, squares) for each end of the first of `left` stages that begin there.
  template <class Visit>
  void for_each_end(int begin, int left, Visit visit) {
    double sum = 0;
    for (int end = begin + 1; end <= positions_ - (left - 1); ++end) {
      sum += weights_[static_cast<size_t>(end) - 1];
      if (sum > most_) return;
      visit(end, sum * sum + least(left - 1, end));
    }
  }

  const std::vector<double>& weights_;
  int positions_, stages_;
  double most_;
  std::vector<std::vector<double>> least_;  // by number of stages left and their begin
};

}  // namespace

Partition balance(const std::vector<double>& weights, int stages) {
  if (static_cast<int>(weights.size()) <= stages) return *within(weights, stages, kUnbounded);
  return EvenCut(weights, stages, least_maximum(weights, stages)).run();
}

Partition make_partition(const PartitionRule& rule, const ModelInfo& model, int stages) {
  if (!rule.rule.get_if<std::string>()) {
    std::vector<int> counts;
    convert(rule.rule, "pipe.split.partition", counts);
    return listed(counts, model, stages);
  }
  const std::string& name = *rule.rule.get_if<std::string>();
  if (name == "uniform") return uniform(model, stages);
  if (name == "parameters") return balance_blocks(parameters_of(model), model, stages);
  if (name == "cost") return balance_blocks(seconds_of(rule.costs, model), model, stages);
  if (name.starts_with("type:")) return balance_blocks(matches_of(name.substr(5), model), model, stages);
  static const std::vector<std::string> known{"uniform", "parameters", "cost", "type:REGEX"};
  misuse("pipe.split.partition: unknown value '{}'{}: give uniform, parameters, cost, type:REGEX, or a list", name,
         suggest(name, known));
}

}  // namespace zt::pipe
