#include "zt/model/axis_ops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

// What an operation does in its forward, or in its backward. All are linear functions of x.
enum class Move : uint8_t { same, sum, share, joined, share_of_sum, exchange };

struct Step {
  Move move;
  int64_t dim = 0;      // of shares; of an exchange: the dim that is joined
  int64_t total = 0;    // the size of `dim` over all ranks
  int64_t cut_dim = 0;  // of an exchange
  SumDtype sums = {};   // of a sum
};

struct AxisOp {
  Context* context;
  std::string axis;
  Step forward, backward;
};

// Starts the steps of an operation. `x` and the results are outside of autograd.
class Mover {
 public:
  Mover(Context& context, const std::string& axis, Async async)
      : context_(context),
        axis_(axis),
        async_(async),
        comm_(context.comm(axis)),
        ranks_(comm_.size()),
        rank_(context.rank_along(axis)) {}

  MoveResult start(const Step& step, const at::Tensor& x) const {
    switch (step.move) {
      case Move::same:
        return {x, {}};
      case Move::share:
        return {part(x, step.dim, share(step.total, rank_)), {}};
      case Move::joined:
        return joined(x, step.dim, step.total);
      case Move::exchange:
        return exchange(x, step);
      case Move::sum:
      case Move::share_of_sum:
        break;
    }
    const at::Tensor parts = step.sums ? x.to(*step.sums) : x;
    const bool is_converted = parts.scalar_type() != x.scalar_type();
    const MoveResult moved = step.move == Move::sum ? sum(parts, is_converted) : share_of_sum(parts, step.dim, step.total);
    if (!is_converted) return moved;
    const at::Tensor result = at::empty(moved.result.sizes(), x.options());
    return {result, then(moved.work, [result, of_parts = moved.result] { result.copy_(of_parts); })};
  }

 private:
  Share share(int64_t total, int rank) const { return share_of(total, ranks_, rank); }
  static at::Tensor part(const at::Tensor& x, int64_t dim, Share range) { return x.narrow(dim, range.begin, range.count); }
  void note(int64_t elements, const at::Tensor& x, Pattern pattern) const {
    context_.sent(axis_, elements * static_cast<int64_t>(x.element_size()), pattern);
  }
  // Returns the number of collectives that move shares of `dim` between x and their places in the whole, which must be one after
  // the other: one for each index before `dim`. 0: not so, as shares have several sizes, or it would take many short calls. Then
  // one collective moves all, from or to other memory.
  int64_t calls_in_place(const at::Tensor& x, int64_t dim, int64_t total) const {
    constexpr int64_t kLeastBytes = 128 << 10, kMostCalls = 64;  // of a call on the CPU
    if (total % ranks_ != 0) return 0;
    const auto before = std::accumulate(x.sizes().begin(), x.sizes().begin() + dim, int64_t{1}, std::multiplies<>());
    if (before == 1) return 1;
    const auto bytes = static_cast<int64_t>(x.nbytes()) / std::max<int64_t>(1, x.size(dim)) * (total / ranks_);
    return x.is_cpu() && before <= kMostCalls && bytes >= before * kLeastBytes ? before : 0;
  }
  static std::vector<int64_t> with_size(at::IntArrayRef shape, int64_t dim, int64_t size) {
    std::vector<int64_t> changed = shape.vec();
    changed[static_cast<size_t>(dim)] = size;
    return changed;
  }
  // Returns memory for one share of every rank, each as large as the first, and that of one rank in it.
  at::Tensor rooms(const at::Tensor& x, int64_t dim, int64_t total, bool is_cleared) const {
    std::vector<int64_t> shape = with_size(x.sizes(), dim, share(total, 0).count);
    shape.insert(shape.begin(), ranks_);
    return is_cleared ? at::zeros(shape, x.options()) : at::empty(shape, x.options());
  }

  MoveResult sum(const at::Tensor& x, bool may_overwrite) const {
    note(2 * x.numel() * (ranks_ - 1) / ranks_, x, Pattern::collective);
    const at::Tensor in = x.contiguous(), out = may_overwrite ? in : at::empty_like(in);
    const Work work = x.is_meta() ? Work() : comm_.all_reduce(out.view({-1}), in.view({-1}), ReduceOp::sum, async_);
    return {out, keeping(work, in)};
  }

  MoveResult joined(const at::Tensor& x, int64_t dim, int64_t total) const {
    const at::Tensor all = at::empty(with_size(x.sizes(), dim, total), x.options());
    if (const int64_t calls = calls_in_place(x, dim, total); calls > 0) {
      note(all.numel() / ranks_ * (ranks_ - 1), x, Pattern::collective);
      const at::Tensor mine = x.contiguous();
      return {
          all,
          keeping(each_of(calls, all, mine,
                          [&](const at::Tensor& whole, const at::Tensor& own) { return comm_.all_gather(whole, own, async_); }),
                  mine)};
    }
    const at::Tensor received = rooms(x, dim, total, false);
    note(received.numel() / ranks_ * (ranks_ - 1), x, Pattern::collective);
    at::Tensor mine = x;
    const int64_t room = share(total, 0).count;
    if (x.size(dim) < room) {
      mine = at::zeros(with_size(x.sizes(), dim, room), x.options());
      mine.narrow(dim, 0, x.size(dim)).copy_(x);
    }
    mine = mine.contiguous();
    const Work work = x.is_meta() ? Work() : comm_.all_gather(received.view({-1}), mine.view({-1}), async_);
    return {all, then(work, [all, received, mine, dim, total, ranks = ranks_] {
              for (int r = 0; r < ranks; ++r) {
                const Share range = share_of(total, ranks, r);
                part(all, dim, range).copy_(received[r].narrow(dim, 0, range.count));
              }
            })};
  }

  MoveResult share_of_sum(const at::Tensor& x, int64_t dim, int64_t total) const {
    const at::Tensor mine = at::empty(with_size(x.sizes(), dim, share(total, 0).count), x.options()),
                     result = mine.narrow(dim, 0, share(total, rank_).count);
    if (const int64_t calls = calls_in_place(x, dim, total); calls > 0) {
      note(x.numel() / ranks_ * (ranks_ - 1), x, Pattern::collective);
      const at::Tensor whole = x.contiguous();
      return {result, keeping(each_of(calls, mine, whole,
                                      [&](const at::Tensor& own, const at::Tensor& all) {
                                        return comm_.reduce_scatter(own, all, ReduceOp::sum, async_);
                                      }),
                              whole)};
    }
    const at::Tensor sent = rooms(x, dim, total, total % ranks_ != 0);
    note(sent.numel() / ranks_ * (ranks_ - 1), x, Pattern::collective);
    for (int r = 0; r < ranks_; ++r) {
      const Share range = share(total, r);
      sent[r].narrow(dim, 0, range.count).copy_(part(x, dim, range));
    }
    const Work work = x.is_meta() ? Work() : comm_.reduce_scatter(mine.view({-1}), sent.view({-1}), ReduceOp::sum, async_);
    return {result, keeping(work, sent)};
  }

  // Starts call(part of to, part of from) for each of `calls` equal parts of contiguous tensors; none on device meta.
  template <class Call>
  static Work each_of(int64_t calls, const at::Tensor& to, const at::Tensor& from, const Call& call) {
    std::vector<Work> works;
    const at::Tensor parts = to.view({calls, to.numel() / calls}), of_from = from.view({calls, from.numel() / calls});
    for (int64_t i = 0; i < calls && !to.is_meta(); ++i) works.push_back(call(parts[i], of_from[i]));
    return all_of(std::move(works));
  }
  // Returns the work, which keeps the tensor.
  static Work keeping(const Work& work, const at::Tensor& tensor) {
    return then(work, [tensor] {});
  }

  MoveResult exchange(const at::Tensor& x, const Step& step) const {
    const int64_t cut_total = x.size(step.cut_dim), cut_count = share(cut_total, rank_).count;
    const at::Tensor all = at::empty(with_size(with_size(x.sizes(), step.dim, step.total), step.cut_dim, cut_count), x.options());
    const int64_t of_row = x.numel() / std::max<int64_t>(1, cut_total);  // elements of x per row of the cut dim
    const int64_t of_joined_row = all.numel() / std::max<int64_t>(1, step.total);
    note((cut_total - cut_count) * of_row, x, Pattern::all_to_all);
    if (x.is_meta()) return {all, {}};
    std::vector<int64_t> to_ranks, from_ranks;
    const at::Tensor sent = at::empty({x.numel()}, x.options()), received = at::empty({all.numel()}, x.options());
    int64_t at = 0;
    for (int r = 0; r < ranks_; ++r) {
      const at::Tensor piece = part(x, step.cut_dim, share(cut_total, r));
      sent.narrow(0, at, piece.numel()).view(piece.sizes()).copy_(piece);
      at += piece.numel();
      to_ranks.push_back(piece.numel());
      from_ranks.push_back(share(step.total, r).count * of_joined_row);
    }
    comm_.all_to_all(received, sent, from_ranks, to_ranks).wait();
    at = 0;
    for (int r = 0; r < ranks_; ++r) {
      at::Tensor place = part(all, step.dim, share(step.total, r));
      place.copy_(received.narrow(0, at, place.numel()).view(place.sizes()));
      at += place.numel();
    }
    return {all, {}};
  }

  Context& context_;
  const std::string& axis_;
  Async async_;
  Communicator& comm_;
  int ranks_, rank_;
};

struct AxisFunction : torch::autograd::Function<AxisFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* node, const at::Tensor& x, const AxisOp& op) {
    node->saved_data["op"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(op));
    return Mover(*op.context, op.axis, Async::no).start(op.forward, x).wait();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* node,
                                                 torch::autograd::variable_list gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(node->saved_data.at("op").toCapsule());
    const AxisOp& op = kept->op;
    return {Mover(*op.context, op.axis, Async::no).start(op.backward, gradients[0]).wait(), {}};
  }

 private:
  struct Kept : torch::CustomClassHolder {
    explicit Kept(const AxisOp& op) : op(op) {}
    AxisOp op;
  };
};

at::Tensor apply(const AxisOp& op, const at::Tensor& x) {
  return op.context->ranks_along(op.axis) == 1 ? x : AxisFunction::apply(x, op);
}

// Returns the dim, counted from 0.
int64_t checked_dim(const char* name, const std::string& axis, const at::Tensor& x, int64_t dim) {
  const int64_t from_front = dim < 0 ? dim + x.dim() : dim;
  if (from_front < 0 || from_front >= x.dim()) misuse("{} over '{}': there is no dim {} in {}", name, axis, dim, describe(x));
  return from_front;
}

void check_share(const char* name, Context& context, const std::string& axis, const at::Tensor& x, int64_t dim, int64_t total) {
  const int ranks = context.ranks_along(axis), rank = context.rank_along(axis);
  const int64_t wanted = share_of(total, ranks, rank).count;
  if (total < 0 || x.size(dim) != wanted)
    misuse("{} over '{}': the share of {} of rank {} of {} has {} rows in dim {}, got {}", name, axis, total, rank, ranks, wanted,
           dim, describe(x));
}

}  // namespace

at::Tensor copy_to(Context& context, const std::string& axis, const at::Tensor& x, SumDtype sums) {
  return apply({&context, axis, {Move::same}, {.move = Move::sum, .sums = sums}}, x);
}

at::Tensor reduce_from(Context& context, const std::string& axis, const at::Tensor& x, SumDtype sums) {
  return apply({&context, axis, {.move = Move::sum, .sums = sums}, {Move::same}}, x);
}

at::Tensor scatter_to(Context& context, const std::string& axis, const at::Tensor& x, int64_t given_dim) {
  const int64_t dim = checked_dim("scatter_to", axis, x, given_dim), total = x.size(dim);
  return apply({&context, axis, {Move::share, dim, total}, {Move::joined, dim, total}}, x);
}

at::Tensor reduce_scatter_to(Context& context, const std::string& axis, const at::Tensor& x, int64_t given_dim, SumDtype sums) {
  const int64_t dim = checked_dim("reduce_scatter_to", axis, x, given_dim), total = x.size(dim);
  return apply({&context, axis, {Move::share_of_sum, dim, total, 0, sums}, {Move::joined, dim, total}}, x);
}

at::Tensor gather_from(Context& context, const std::string& axis, const at::Tensor& x, int64_t given_dim, int64_t total,
                       GatherUse use, SumDtype sums) {
  const int64_t dim = checked_dim("gather_from", axis, x, given_dim);
  check_share("gather_from", context, axis, x, dim, total);
  const Move back = use == GatherUse::alike ? Move::share : Move::share_of_sum;
  return apply({&context, axis, {Move::joined, dim, total}, {back, dim, total, 0, sums}}, x);
}

at::Tensor all_to_all(Context& context, const std::string& axis, const at::Tensor& x, int64_t joined_dim, int64_t cut_dim,
                      int64_t total) {
  const int64_t joined = checked_dim("all_to_all", axis, x, joined_dim), cut = checked_dim("all_to_all", axis, x, cut_dim);
  if (joined == cut) misuse("all_to_all over '{}': joined_dim and cut_dim are both {}: give two", axis, joined);
  check_share("all_to_all", context, axis, x, joined, total);
  return apply({&context, axis, {Move::exchange, joined, total, cut}, {Move::exchange, cut, x.size(cut), joined}}, x);
}

namespace {

// With Async::no the result is there, so its work keeps no memory.
MoveResult start(Context& context, const std::string& axis, const Step& step, const at::Tensor& x, Async async) {
  if (context.ranks_along(axis) == 1) return {x, {}};
  const MoveResult moved = Mover(context, axis, async).start(step, x);
  return async == Async::yes ? moved : MoveResult{moved.wait(), {}};
}

}  // namespace

MoveResult start_sum(Context& context, const std::string& axis, const at::Tensor& x, SumDtype sums, Async async) {
  return start(context, axis, {.move = Move::sum, .sums = sums}, x, async);
}

MoveResult start_gather(Context& context, const std::string& axis, const at::Tensor& x, int64_t given_dim, int64_t total,
                        Async async) {
  const int64_t dim = checked_dim("start_gather", axis, x, given_dim);
  check_share("start_gather", context, axis, x, dim, total);
  return start(context, axis, {Move::joined, dim, total}, x, async);
}

MoveResult start_share_of_sum(Context& context, const std::string& axis, const at::Tensor& x, int64_t given_dim, SumDtype sums,
                              Async async) {
  const int64_t dim = checked_dim("start_share_of_sum", axis, x, given_dim), total = x.size(dim);
  return start(context, axis, {Move::share_of_sum, dim, total, 0, sums}, x, async);
}

}  // namespace zt
