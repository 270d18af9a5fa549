// One call of zt::transfer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transfer_differences.h"
#include "transfer_rounds.h"
#include "zt/train/tensors.h"
#include "zt/train/transfer.h"

namespace zt {

// What a trainer keeps of the transfers to it.
class KeptTransfers {
 public:
  struct Entry {
    int64_t from;         // Store::number
    std::string options;  // as text
    std::vector<TensorPair> pairs;
    Moves moves;
    TransferPlan plan;
  };
  // Returns the transfer from that store with these options; null if there was none, or too many after it.
  const Entry* find(int64_t from, const std::string& options) const;
  const Entry& add(Entry entry);

 private:
  static constexpr size_t kMost = 4;  // ranks make the same calls, so all keep the same ones
  std::vector<std::unique_ptr<Entry>> entries_;
};

class TransferCall {
 public:
  TransferCall(TrainerTensors& from, TrainerTensors& to, const TransferOptions& options);
  TransferReport run();

 private:
  std::string complaints();
  void check_data(std::string& lines) const;
  void agree(const std::string& complaint) const;
  void check_own_models() const;
  const KeptTransfers::Entry& prepared();
  MovedBytes move(const KeptTransfers::Entry& entry);
  bool needs_masters_of_from() const;

  TrainerTensors &from_, &to_;
  const TransferOptions& options_;
  const std::string text_;       // of the options
  std::shared_ptr<Axis> world_;  // null if no rank needs another one
  std::vector<TensorPair> pairs_;
};

}  // namespace zt
