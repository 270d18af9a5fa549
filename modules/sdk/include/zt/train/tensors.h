// The tensors of a trainer's model by name, whole, whatever part of them a rank holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace zt {

class KeptTransfers;
class Store;
enum class TrainerData : uint8_t;
struct TrainerRuns;

// A tensor of a model's state: a parameter, or one that a layer changes itself (LayerBuffer), such as "blocks.1.router.bias".
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;         // of the whole tensor, of which a rank may hold a part
  at::ScalarType dtype = at::kFloat;  // as layers see it
  bool is_parameter = true;
};

// Functions that return tensors return copies of the tensor's shape, and are collective over the mesh if the tensor is sharded,
// cut into boxes, or not held by all ranks: then they throw Misuse on all ranks if these read other tensors or trainers. All but
// the first two throw Misuse on a dry trainer, and where the last step has failed. Threads: the rank's thread only.
class TrainerTensors {
 public:
  // `running` is null for a dry trainer.
  TrainerTensors(Store& store, TrainerRuns* running) : store_(store), running_(running) {}

  // The parameters in the model's order, then the tensors that layers change themselves. This is the one list of the names that
  // the following functions take and that files of the model hold.
  const std::vector<ModelTensor>& all() const;
  const ModelTensor& at(const std::string& name) const;  // throws Misuse, with the nearest name, for an unknown name

  // `parameter` is what layers see; `master` is what the optimizer sees, in its precision, which is more exact in mixed
  // precision. Both return the same for a tensor that a layer changes itself; it has no gradient and no optimizer state.
  at::Tensor parameter(const std::string& name);
  at::Tensor master(const std::string& name);
  // Returns the last step's gradient of the objective before clipping, in float32 or float64. Over all parameters its norm is
  // StepResult::grad_norm. It does not depend on the number of ranks or micro-batches, nor on the loss scale. By hand, after the
  // last backward and before finish_step, it is the gradient of the mean over micro-batches and data-parallel ranks. Throws
  // Misuse while micro-batches are missing.
  at::Tensor gradient(const std::string& name);
  std::map<std::string, at::Tensor> optimizer_state(const std::string& name);
  // Returns a copy of a pass's buffer: of a sharded one what it has for the parameter `owner`; else this rank's values for the
  // unit, position or layer of that name, or for the run, which has none (not collective). Throws Misuse if there is none.
  at::Tensor pass_buffer(const std::string& buffer, const std::string& owner);

  // Set the same values on all ranks, or those of rank `from` of the mesh, of any float type. Collective. A packed parameter
  // takes also the bytes of the whole packed matrix, uint8 [n], on all ranks.
  void set_parameter(const std::string& name, const at::Tensor& values, std::optional<int> from = {});
  void set_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& values,
                           std::optional<int> from = {});

 private:
  friend class TransferCall;  // zt/train/transfer.h

  void drain();
  template <class Of, class Read>
  auto read(const char* what, const std::string& name, Of of, const Read& read);
  std::string prepare_change(const char* call, const std::set<TrainerData>& needed);
  bool has_own_masters() const;
  void require_here(const char* what, TrainerData data) const;

  Store& store_;
  TrainerRuns* running_;
  std::shared_ptr<KeptTransfers> kept_;  // plans of transfers to this trainer
};

}  // namespace zt
