// Communication along a mesh axis within a layer's forward, with its gradients: what a layer that is cut over ranks is made of.
//
// All ranks of the axis call the same functions in the same order; the layer lists the axis in axes(). In the table W is the
// number of ranks, and a share is the part of a dim that share_of gives to this rank, of unequal sizes where W does not divide
// the dim. Sums are those of the communicator: a fixed tree, with equal bits on all ranks.
//
// | function          | forward                          | backward                                                   |
// |-------------------|----------------------------------|------------------------------------------------------------|
// | copy_to           | x                                | the sum of the gradients                                   |
// | reduce_from       | the sum of x                     | the gradient                                               |
// | scatter_to        | this rank's share                | the shares of all ranks, joined                            |
// | gather_from       | the shares of all ranks, joined  | this rank's share of the gradient, or of the sum of theirs |
// | reduce_scatter_to | this rank's share of the sum     | the shares of all ranks, joined                            |
// | all_to_all        | joins one dim and cuts another   | the same, back                                             |
//
// `x` has the communicator's device. Where no other rank shares the work (Context::ranks_along), all of them return x. On device
// meta they compute shapes and send nothing. They note what they send (Context::sent). Errors: Misuse, on the ranks whose x is
// wrong, for a dim that x does not have or a share of another size. Threads: the rank's thread and, in the backward, that of
// autograd, while the rank's waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "zt/comm/comm.h"
#include "zt/model/layer.h"

namespace zt {

// The dtype in which the parts of a sum travel and are added. The sum is converted back to the dtype of x. Nothing: that of x.
using SumDtype = std::optional<at::ScalarType>;

at::Tensor copy_to(Context& context, const std::string& axis, const at::Tensor& x, SumDtype sums = {});
at::Tensor reduce_from(Context& context, const std::string& axis, const at::Tensor& x, SumDtype sums = {});
at::Tensor scatter_to(Context& context, const std::string& axis, const at::Tensor& x, int64_t dim);
at::Tensor reduce_scatter_to(Context& context, const std::string& axis, const at::Tensor& x, int64_t dim, SumDtype sums = {});

// How the ranks use what gather_from returns.
enum class GatherUse : uint8_t {
  alike,     // all compute the same from it, so that their gradients are equal: the backward takes the share
  in_parts,  // each computes another part of the result, so that their gradients add up: the backward sums, then takes the share
};
constexpr auto words_of(GatherUse) {
  return std::array{"alike", "in_parts"};
}
// `total`: the size of `dim` in the result.
at::Tensor gather_from(Context& context, const std::string& axis, const at::Tensor& x, int64_t dim, int64_t total, GatherUse use,
                       SumDtype sums = {});

// `x` has this rank's share of `joined_dim`, whose size is `total`, and all of `cut_dim`. The result has all of the first and
// this rank's share of the second.
at::Tensor all_to_all(Context& context, const std::string& axis, const at::Tensor& x, int64_t joined_dim, int64_t cut_dim,
                      int64_t total);

// The same moves without autograd, for functions with a backward of their own. With Async::yes they go on while the rank
// computes.
struct MoveResult {
  at::Tensor result;  // has its values after `work`
  Work work;
  // Lets the current stream (on the CPU: the thread) wait, and returns the result.
  at::Tensor wait() const {
    work.wait();
    return result;
  }
};
MoveResult start_sum(Context& context, const std::string& axis, const at::Tensor& x, SumDtype sums, Async async);
MoveResult start_gather(Context& context, const std::string& axis, const at::Tensor& x, int64_t dim, int64_t total, Async async);
MoveResult start_share_of_sum(Context& context, const std::string& axis, const at::Tensor& x, int64_t dim, SumDtype sums,
                              Async async);

}  // namespace zt
