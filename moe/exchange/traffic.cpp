#include "exchange/traffic.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>

#include "exchange/row_order.h"
#include "zt/base/error.h"

namespace zt::moe {

namespace {

constexpr int64_t kRefused = -1;  // instead of a count

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Starts to send `rows`, of which to_ranks[r] go to rank r, in the dtype of the options. Returns those that arrive, in that
// dtype.
MovedRows move_rows(const at::Tensor& rows, const std::vector<int64_t>& to_ranks, const std::vector<int64_t>& from_ranks,
                    Communicator& comm, const SendOptions& options) {
  const at::Tensor out = options.dtype ? rows.to(*options.dtype) : rows;
  const at::Tensor arrived = at::empty({sum_of(from_ranks), rows.size(1)}, out.options());
  const int64_t to_others = rows.size(0) - to_ranks[static_cast<size_t>(comm.rank())];
  return {arrived, comm.all_to_all(arrived, out, from_ranks, to_ranks, options.async),
          to_others * rows.size(1) * static_cast<int64_t>(out.element_size())};
}

}  // namespace

int64_t RowTraffic::rows_received() const {
  return sum_of(received);
}

std::vector<int64_t> RowTraffic::splits(const std::vector<int64_t>& counts) const {
  std::vector<int64_t> splits;
  for (auto part = counts.begin(); part != counts.end(); part += own_experts())
    splits.push_back(std::accumulate(part, part + own_experts(), int64_t{0}));
  return splits;
}

std::vector<int64_t> RowTraffic::rows_of_experts() const {
  std::vector<int64_t> rows(static_cast<size_t>(own_experts()), 0);
  for (size_t i = 0; i < received.size(); ++i) rows[i % rows.size()] += received[i];
  return rows;
}

at::Tensor RowTraffic::tensor() const {
  std::vector<int64_t> numbers = sent;
  numbers.insert(numbers.end(), received.begin(), received.end());
  return at::tensor(numbers, at::kLong);
}

RowTraffic RowTraffic::from_tensor(const at::Tensor& numbers, int ranks) {
  const auto* first = numbers.const_data_ptr<int64_t>();
  const int64_t experts = numbers.numel() / 2;
  return {{first, first + experts}, {first + experts, first + 2 * experts}, ranks};
}

RowTraffic exchange_counts(std::vector<int64_t> sent, Communicator& comm) {
  const at::Tensor own = at::tensor(sent, at::kLong), theirs = at::empty_like(own);
  comm.all_to_all(theirs, own).synchronize();
  const auto* first = theirs.const_data_ptr<int64_t>();
  if (std::find(first, first + theirs.numel(), kRefused) != first + theirs.numel()) throw PeerFailed();
  return {std::move(sent), {first, first + theirs.numel()}, comm.size()};
}

void refuse_counts(int64_t experts, Communicator& comm) {
  const at::Tensor own = at::full({experts}, kRefused, at::kLong);
  comm.all_to_all(at::empty_like(own), own).synchronize();
}

MovedRows to_experts(const at::Tensor& sent, const RowTraffic& traffic, Communicator* comm, const SendOptions& options) {
  if (traffic.ranks == 1) return {sent, {}};
  auto [arrived, work, bytes] = move_rows(sent, traffic.sent_splits(), traffic.received_splits(), *comm, options);
  const int64_t own = traffic.own_experts();
  if (own == 1 && !options.dtype) return {arrived, std::move(work), bytes};
  const at::Tensor rows = at::empty(arrived.sizes(), sent.options());
  const auto reorder = [=, arrived = arrived, received = traffic.received] {
    const at::Tensor widened = arrived.to(rows.scalar_type());
    swap_block_order(rows, widened, received, own);
  };
  return {rows, then(std::move(work), reorder), bytes};
}

MovedRows from_experts(const at::Tensor& rows, const RowTraffic& traffic, Communicator* comm, const SendOptions& options) {
  if (traffic.ranks == 1) return {rows, {}};
  at::Tensor by_rank = rows;
  if (const int64_t own = traffic.own_experts(); own > 1) {
    by_rank = at::empty_like(rows);
    swap_block_order(by_rank, rows, swapped_sizes(traffic.received, own), traffic.ranks);
  }
  auto [arrived, work, bytes] = move_rows(by_rank, traffic.received_splits(), traffic.sent_splits(), *comm, options);
  if (!options.dtype) return {arrived, std::move(work), bytes};
  const at::Tensor back = at::empty(arrived.sizes(), rows.options());
  return {back, then(std::move(work), [=, arrived = arrived] { at::Tensor(back).copy_(arrived); }), bytes};
}

}  // namespace zt::moe
