// Where the elements of a lane come from and go to on this rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "copy_elements.h"
#include "train/store/store.h"
#include "transfer_plan.h"

namespace zt {

class TransferSource {
 public:
  virtual ~TransferSource() = default;
  // Returns the elements of a run, [times, count]: a view, or a copy of what is not in memory.
  virtual at::Tensor elements(const TransferRun& run) const = 0;
  // Returns all elements if they lie in memory of the host, else null.
  virtual HostElements host() const { return {}; }
};

class TransferTarget {
 public:
  virtual ~TransferTarget() = default;
  // Sets the elements of a run to `values`, [times, count] of any float type.
  virtual void take(const TransferRun& run, const at::Tensor& values) = 0;
  // Returns all elements if they lie in memory of the host, where they may be set as well, else null.
  virtual HostElements host() const { return {}; }
  // All runs of the part have been taken.
  virtual void complete(int32_t /*part*/) {}
};

// The ends of a lane. Null where this rank gives or takes nothing.
struct TransferEnds {
  at::ScalarType travels = at::kFloat;  // the dtype of its elements in buckets
  std::shared_ptr<const TransferSource> source = {};
  std::shared_ptr<TransferTarget> target = {};
};

// Returns the elements of a flat tensor.
std::shared_ptr<const TransferSource> flat_source(at::Tensor flat);
std::shared_ptr<TransferTarget> flat_target(at::Tensor flat);

// Returns the part of a parameter that a rank owns, wherever it lies, by the names of owned_data.h. A target sets those of
// `tensors` one after the other: the first takes the values, and the next ones take what the first has, rounded.
std::shared_ptr<const TransferSource> owned_source(const Store& store, int param, const std::string& tensor);
std::shared_ptr<TransferTarget> owned_target(const Store& store, int param, const std::vector<std::string>& tensors);

}  // namespace zt
