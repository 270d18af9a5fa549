#include "attention_tiled.h"

#include <ATen/Parallel.h>

#include "attention_backward.h"
#include "attention_forward.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::nn {

namespace {

// Calls body(T{}, A{}), where T is the dtype of x and A the type of the arithmetic. Throws Misuse for other dtypes.
template <class Body>
void for_dtypes(const at::Tensor& x, const Body& body) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return body(float{}, float{});
    case at::kDouble:
      return body(double{}, double{});
    case at::kBFloat16:
      return body(c10::BFloat16{}, float{});
    case at::kHalf:
      return body(c10::Half{}, float{});
    default:
      misuse("attention computes in float16, bfloat16, float32 or float64, got {}", describe(x));
  }
}

// Calls run(index) for all indices in parallel. Each thread makes one task object for its share of the indices. On device meta
// one task object is made, as by the calling thread, and nothing is run.
template <class MakeTask>
void for_tasks(int64_t count, at::Device device, const MakeTask& make_task) {
  if (device.is_meta()) return void(make_task());
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    auto task = make_task();
    for (int64_t index = begin; index < end; ++index) task.run(index);
  });
}

// Returns the elements of a tensor of that dtype; null on device meta.
template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// Calls body(R{}), where R is T or A, whichever the results have.
template <class T, class A, class Body>
void for_result(const at::Tensor& result, const at::Tensor& in, const Body& body) {
  if (result.scalar_type() == in.scalar_type()) body(T{});
  else body(A{});
}

}  // namespace

void attention_forward(const at::Tensor& out, const at::Tensor& logsumexp, const AttentionViews& in,
                       const AttentionTokens& tokens, const AttentionRule& rule, Isa isa) {
  for_dtypes(in.queries, [&]<class T, class A>(T, A) {
    const AttentionCall<T, A> call(in, tokens, rule, isa);
    for_result<T, A>(out, in.queries, [&]<class O>(O) {
      for_tasks(call.samples * rule.shape.heads * call.query_groups(), call.device,
                [&] { return AttentionForward<T, A, O>(call, data_of<O>(out), data_of<A>(logsumexp)); });
    });
  });
}

void attention_backward(const AttentionViews& grads, GradientSum sum, const at::Tensor& dout, const AttentionViews& in,
                        const at::Tensor& out, const at::Tensor& logsumexp, const AttentionTokens& tokens,
                        const AttentionRule& rule, Isa isa) {
  for_dtypes(in.queries, [&]<class T, class A>(T, A) {
    const AttentionCall<T, A> call(in, tokens, rule, isa);
    for_result<T, A>(grads.queries, in.queries, [&]<class G>(G) {
      using Task = AttentionBackward<T, A, G>;
      const auto rows = [&](const at::Tensor& view) { return HeadRows<G>(view, rule.shape.head_dim); };
      const typename Task::Gradients to{rows(grads.queries), rows(grads.keys), rows(grads.values), sum};
      for_tasks(call.samples * rule.shape.kv_heads, call.device,
                [&] { return Task(call, to, data_of<T>(dout), data_of<T>(out), data_of<A>(logsumexp)); });
    });
  });
}

}  // namespace zt::nn
