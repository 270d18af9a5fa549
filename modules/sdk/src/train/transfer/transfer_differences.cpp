#include "transfer_differences.h"

#include <algorithm>
#include <set>

#include "zt/base/error.h"
#include "zt/base/regex.h"
#include "zt/base/tensor.h"
#include "zt/reshard/reshard.h"

namespace zt {

namespace {

std::string described(const ModelTensor& tensor) {
  return fmt::format("'{}' [{}]", tensor.name, fmt::join(tensor.shape, ", "));
}

// Returns the index of a tensor; -1 if there is none of this name.
int place_of(const Store& store, const std::string& name) {
  const auto found = std::ranges::find(store.tensors(), name, &ModelTensor::name);
  return found == store.tensors().end() ? -1 : static_cast<int>(found - store.tensors().begin());
}

class Comparison {
 public:
  Comparison(const Store& from, const Store& to, const TransferOptions& options) : from_(from), to_(to), options_(options) {
    for (const std::string& pattern : options.only) only_.emplace_back(pattern, "zt.transfer.only");
    for (const AdapterProduct& product : options.merged) merged_.insert({product.a, product.b});
  }

  ComparedTrainers run() {
    check_patterns();
    for (int tensor = 0; tensor < static_cast<int>(to_.tensors().size()); ++tensor) add(tensor);
    for (const ModelTensor& tensor : from_.tensors()) {
      if (is_wanted(tensor.name) && !used_.contains(tensor.name) && !merged_.contains(tensor.name))
        say("only the trainer to read from has {}", described(tensor));
    }
    check_tied(from_, to_, "the trainer to read from", "the other one");
    check_tied(to_, from_, "the trainer to set", "the other one");
    for (const AdapterProduct& product : options_.merged) check_product(product);
    return std::move(result_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    result_.differences.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool is_wanted(const std::string& name) const {
    return only_.empty() || std::ranges::any_of(only_, [&](const Regex& regex) { return regex.is_found_in(name); });
  }

  void check_patterns() {
    for (size_t i = 0; i < only_.size(); ++i) {
      const auto matches = [&](const ModelTensor& tensor) { return only_[i].is_found_in(tensor.name); };
      if (std::ranges::none_of(to_.tensors(), matches))
        say("no tensor of the trainer to set has a name that contains a match of '{}' (only)", options_.only[i]);
    }
  }

  void add(int tensor) {
    const ModelTensor& wanted = to_.tensors()[tensor];
    if (!is_wanted(wanted.name)) return;
    const auto other = options_.sources.find(wanted.name);
    const std::string& name = other == options_.sources.end() ? wanted.name : other->second;
    const int source = place_of(from_, name);
    if (source < 0) return say("only the trainer to set has {}", described(wanted));
    used_.insert(name);
    const ModelTensor& given = from_.tensors()[source];
    if (merged_.contains(name))
      return say("'{}' is of an adapter that is to be merged, and the trainer to set has it, too: its product would count twice",
                 name);
    if (given.shape != wanted.shape)
      return say("'{}' is [{}] in the trainer to read from and [{}] in the trainer to set", name, fmt::join(given.shape, ", "),
                 fmt::join(wanted.shape, ", "));
    if (given.is_parameter != wanted.is_parameter)
      return say("'{}' is a parameter in one trainer, and a tensor that its layer changes itself in the other", name);
    if (!wanted.is_parameter && given.dtype != wanted.dtype)
      return say("'{}' is {} in the trainer to read from and {} in the trainer to set: such tensors are not converted", name,
                 dtype_name(given.dtype), dtype_name(wanted.dtype));
    result_.pairs.push_back({tensor, source});
  }

  // A head that is the weight of an embedding has no name of its own.
  void check_tied(const Store& one, const Store& other, const char* of_one, const char* of_other) {
    const std::string head = "head.weight", embedding = "embedding.weight";
    const bool is_apart = place_of(one, head) >= 0 && place_of(other, head) < 0 && place_of(other, embedding) >= 0;
    const bool is_given = &one == &to_ && options_.sources.contains(head);
    if (is_apart && !is_given && is_wanted(head))
      say("the head of {} has a matrix of its own, and that of {} is the weight of its embedding (tied)", of_one, of_other);
  }

  void check_product(const AdapterProduct& product) {
    const int a = place_of(from_, product.a), b = place_of(from_, product.b), matrix = place_of(from_, product.matrix);
    if (a < 0 || b < 0 || matrix < 0)
      return say("the trainer to read from lacks '{}', '{}' or '{}', of an adapter that is to be merged", product.a, product.b,
                 product.matrix);
    const auto &of_a = from_.tensors()[a].shape, &of_b = from_.tensors()[b].shape, &of_all = from_.tensors()[matrix].shape;
    const bool fits = of_a.size() == 2 && of_b.size() == 2 && of_all.size() == 2 && of_a[0] == of_b[1] && of_a[1] == of_all[1] &&
                      product.first_row >= 0 && product.first_row + of_b[0] <= of_all[0];
    if (!fits) say("the product of '{}' and '{}' is no part of the rows of '{}'", product.b, product.a, product.matrix);
  }

  const Store &from_, &to_;
  const TransferOptions& options_;
  std::vector<Regex> only_;
  std::set<std::string> merged_, used_;
  ComparedTrainers result_;
};

}  // namespace

ComparedTrainers compare_trainers(const Store& from, const Store& to, const TransferOptions& options) {
  return Comparison(from, to, options).run();
}

std::vector<std::string> differences_of_cuts(const Moves& moves, const TransferSide& from, const TransferSide& to, int rank,
                                             int ranks) {
  std::vector<std::string> differences;
  for (const LaneKind& kind : moves.lanes) {
    if (kind.target != LaneTarget::packed_bytes) continue;
    const TransferLane lane = lane_of(kind, from, to, rank, ranks, int64_t{1} << 40);
    const bool is_missing = std::ranges::any_of(
        lane.wanted, [&](const WantedPart& part) { return make_copy_list(lane.shape, lane.held, part.region).missing > 0; });
    const ParamInfo& info = to.store().info(kind.tensor.to);
    if (is_missing)
      differences.push_back(fmt::format(
          "'{}' is packed as {} in both, and the ranks of the two have other cuts of it: read from a trainer with the "
          "plain matrix, or cut both alike",
          info.name, word_of(info.pack.format)));
  }
  return differences;
}

}  // namespace zt
