#include "token_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "parts/function.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// Calls visit(place of the range's first element in the part, range) for the ranges of which a part consists.
template <class Visit>
void for_ranges(const std::vector<Share>& ranges, const Visit& visit) {
  int64_t first = 0;
  for (const Share& range : ranges) {
    visit(first, range);
    first += range.count;
  }
}

// Returns the most tokens that a rank has.
int64_t most_tokens(const ContextCall& call) {
  int64_t most = 0;
  for (int rank = 0; rank < call.ranks(); ++rank) most = std::max(most, call.count(rank));
  return most;
}

int64_t width_of(const std::vector<Share>& columns) {
  int64_t width = 0;
  for (const Share& range : columns) width += range.count;
  return width;
}

bool overlap(const ColumnsOfRanks& columns, int64_t total) {
  int64_t sum = 0;
  for (const auto& of_rank : columns) sum += width_of(of_rank);
  return sum > total;
}

// The state of an exchange of heads and tokens. Its functions hold as little as they can at a time, as samples may be long.
struct HeadExchange {
  ContextCall call;
  ColumnsOfRanks columns;
  int64_t total_columns;

  int own() const { return call.places().rank; }
  const std::vector<Share>& columns_of(int rank) const { return columns[static_cast<size_t>(rank)]; }
  int64_t width(int rank) const { return width_of(columns_of(rank)); }

  // The parts of all ranks, one after the other in memory: each of some tokens and columns.
  struct Parts {
    at::Tensor all;
    std::vector<int64_t> sizes;
    std::vector<at::Tensor> of_rank;
  };
  // shape(rank) returns {samples, tokens, columns}.
  template <class Shape>
  Parts empty_parts(const at::TensorOptions& options, const Shape& shape) const {
    Parts parts;
    for (int rank = 0; rank < call.ranks(); ++rank) {
      const std::array<int64_t, 3> sizes = shape(rank);
      parts.sizes.push_back(sizes[0] * sizes[1] * sizes[2]);
    }
    parts.all = at::empty({std::accumulate(parts.sizes.begin(), parts.sizes.end(), int64_t{0})}, options);
    parts.of_rank = parts.all.split_with_sizes(parts.sizes);
    for (int rank = 0; rank < call.ranks(); ++rank) {
      at::Tensor& part = parts.of_rank[static_cast<size_t>(rank)];
      part = part.view(shape(rank));
    }
    return parts;
  }

  // Sends the parts to their ranks. Returns what they send to this one.
  template <class Shape>
  Parts exchange(const Parts& sent, const Shape& shape) const {
    Parts received = empty_parts(sent.all.options(), shape);
    call.sent(sent.all.numel() - sent.sizes[static_cast<size_t>(own())], sent.all, Pattern::all_to_all);
    if (!sent.all.is_meta()) call.comm().all_to_all(received.all, sent.all, received.sizes, sent.sizes).wait();
    return received;
  }

  Parts exchange_to_heads(const at::Tensor& x) const {
    const int64_t B = x.size(0);
    const Parts sent = empty_parts(x.options(), [&](int rank) { return std::array{B, x.size(1), width(rank)}; });
    for (int rank = 0; rank < call.ranks(); ++rank) {
      for_ranges(columns_of(rank), [&](int64_t first, Share range) {
        sent.of_rank[static_cast<size_t>(rank)].narrow(2, first, range.count).copy_(x.narrow(2, range.begin, range.count));
      });
    }
    return exchange(sent, [&](int rank) { return std::array{B, call.count(rank), width(own())}; });
  }

  at::Tensor to_heads(const at::Tensor& x) const {
    const Parts received = exchange_to_heads(x);
    const at::Tensor all = at::empty({x.size(0), call.places().total, width(own())}, x.options());
    for (int rank = 0; rank < call.ranks(); ++rank) {
      for_ranges(call.ranges(rank), [&](int64_t first, Share range) {
        all.narrow(1, range.begin, range.count).copy_(received.of_rank[static_cast<size_t>(rank)].narrow(1, first, range.count));
      });
    }
    return all;
  }

  Parts exchange_to_tokens(at::Tensor x) const {
    const int64_t B = x.size(0);
    const Parts sent = empty_parts(x.options(), [&](int rank) { return std::array{B, call.count(rank), width(own())}; });
    for (int rank = 0; rank < call.ranks(); ++rank) {
      for_ranges(call.ranges(rank), [&](int64_t first, Share range) {
        sent.of_rank[static_cast<size_t>(rank)].narrow(1, first, range.count).copy_(x.narrow(1, range.begin, range.count));
      });
    }
    x.reset();
    return exchange(sent, [&](int rank) { return std::array{B, call.count(own()), width(rank)}; });
  }

  at::Tensor to_tokens(at::Tensor x) const {
    const at::TensorOptions options = x.options();
    const at::ScalarType dtype = x.scalar_type(), of_sums = overlap(columns, total_columns) ? wide_dtype(dtype) : dtype;
    const int64_t B = x.size(0);
    const Parts received = exchange_to_tokens(std::move(x));
    const at::Tensor sums = at::zeros({B, call.count(own()), total_columns}, options.dtype(of_sums));
    for (int rank = 0; rank < call.ranks(); ++rank) {
      for_ranges(columns_of(rank), [&](int64_t first, Share range) {
        sums.narrow(2, range.begin, range.count).add_(received.of_rank[static_cast<size_t>(rank)].narrow(2, first, range.count));
      });
    }
    return sums.to(dtype);
  }
};

struct ExchangeHeadsFunction : torch::autograd::Function<ExchangeHeadsFunction> {
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, const HeadExchange& exchange, bool to_heads) {
    keep(node, exchange);
    node->saved_data["to_heads"] = to_heads;
    return to_heads ? exchange.to_heads(x) : exchange.to_tokens(x);
  }
  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& exchange = kept<HeadExchange>(node);
    const bool is_back = node->saved_data.at("to_heads").toBool();
    return {is_back ? exchange.to_tokens(std::move(grads[0])) : exchange.to_heads(grads[0]), {}, {}};
  }
};

}  // namespace

at::Tensor gather_tokens(const ContextCall& call, const at::Tensor& own) {
  const int64_t room = most_tokens(call), count = own.size(2), ranks = call.ranks();
  at::Tensor mine = own.contiguous();
  std::vector<int64_t> shape = own.sizes().vec();
  shape[2] = room;
  if (count < room) {
    mine = at::zeros(shape, own.options());
    mine.narrow(2, 0, count).copy_(own);
  }
  shape.insert(shape.begin(), ranks);
  const at::Tensor received = at::empty(shape, own.options());
  call.sent(mine.numel() * (ranks - 1), mine, Pattern::collective);
  if (!own.is_meta()) call.comm().all_gather(received.view({-1}), mine.view({-1})).wait();
  shape.erase(shape.begin());
  shape[2] = call.places().total;
  const at::Tensor whole = at::empty(shape, own.options());
  for (int rank = 0; rank < ranks; ++rank) {
    for_ranges(call.ranges(rank), [&](int64_t first, Share range) {
      whole.narrow(2, range.begin, range.count).copy_(received[rank].narrow(2, first, range.count));
    });
  }
  return whole;
}

at::Tensor scatter_token_sums(const ContextCall& call, const at::Tensor& whole) {
  const int64_t room = most_tokens(call), ranks = call.ranks();
  std::vector<int64_t> shape = whole.sizes().vec();
  shape[2] = room;
  const at::Tensor mine = at::empty(shape, whole.options());
  shape.insert(shape.begin(), ranks);
  const at::Tensor parts = at::zeros(shape, whole.options());
  for (int rank = 0; rank < ranks; ++rank) {
    for_ranges(call.ranges(rank), [&](int64_t first, Share range) {
      parts[rank].narrow(2, first, range.count).copy_(whole.narrow(2, range.begin, range.count));
    });
  }
  call.sent(mine.numel() * (ranks - 1), mine, Pattern::collective);
  if (!whole.is_meta()) call.comm().reduce_scatter(mine.view({-1}), parts.view({-1})).wait();
  return mine.narrow(2, 0, call.count(call.places().rank));
}

at::Tensor whole_segments(const ContextCall& call) {
  const at::Tensor& own = call.inputs.segments;
  return own.defined() ? gather_tokens(call, own.view({1, own.size(0), own.size(1), 1})).view({own.size(0), -1}) : at::Tensor();
}

PassedTensor pass_to_next(const ContextCall& call, const at::Tensor& sent, at::IntArrayRef shape) {
  PassedTensor passed{at::empty(shape, sent.options()), sent, {}};
  call.sent(sent.numel(), sent, Pattern::collective);
  if (sent.is_meta()) return passed;
  const auto ranks = static_cast<size_t>(call.ranks()), rank = static_cast<size_t>(call.places().rank);
  std::vector<int64_t> from_ranks(ranks, 0), to_ranks(ranks, 0);
  from_ranks[(rank + ranks - 1) % ranks] = passed.received.numel();
  to_ranks[(rank + 1) % ranks] = sent.numel();
  passed.work = call.comm().all_to_all(passed.received.view({-1}), sent.view({-1}), from_ranks, to_ranks, Async::yes);
  return passed;
}

at::Tensor exchange_to_heads(const ContextCall& call, const ColumnsOfRanks& columns, const at::Tensor& x) {
  return run_function<ExchangeHeadsFunction>(x, HeadExchange{call, columns, x.size(2)}, true);
}

at::Tensor exchange_to_tokens(const ContextCall& call, const ColumnsOfRanks& columns, const at::Tensor& x) {
  int64_t total = 0;
  for (const auto& of_rank : columns)
    for (const Share& range : of_rank) total = std::max(total, range.end());
  return run_function<ExchangeHeadsFunction>(x, HeadExchange{call, columns, total}, false);
}

}  // namespace zt::nn
