// Rows on their way from tokens to experts on the ranks of an axis, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "zt/comm/comm.h"

namespace zt::moe {

// The rows that this rank sends and receives. The experts are divided into equal parts, one per rank, in order.
struct RowTraffic {
  std::vector<int64_t> sent;      // by expert: the rows for it
  std::vector<int64_t> received;  // by rank and own expert: the rows from it
  int ranks;

  int64_t own_experts() const { return static_cast<int64_t>(sent.size()) / ranks; }
  int64_t rows_received() const;
  // By rank: the rows that go there, and those that come from there.
  std::vector<int64_t> sent_splits() const { return splits(sent); }
  std::vector<int64_t> received_splits() const { return splits(received); }
  // By own expert: its rows from all ranks.
  std::vector<int64_t> rows_of_experts() const;

  // Both lists as one tensor, int64 [experts + experts], and back.
  at::Tensor tensor() const;
  static RowTraffic from_tensor(const at::Tensor& numbers, int ranks);

 private:
  std::vector<int64_t> splits(const std::vector<int64_t>& counts) const;
};

// Finds out what this rank receives: collective over `comm`, which is in host memory. All ranks wait for each other. Throws
// PeerFailed if a rank calls `refuse_counts` instead, because its step has failed.
RowTraffic exchange_counts(std::vector<int64_t> sent, Communicator& comm);
void refuse_counts(int64_t experts, Communicator& comm);

struct MovedRows {
  at::Tensor rows;  // valid after work.wait()
  Work work;
  int64_t sent_bytes = 0;  // to other ranks
};

// How rows are sent: asynchronously or not, and in which dtype if not in their own.
struct SendOptions {
  Async async = Async::no;
  std::optional<at::ScalarType> dtype = {};
};

// Sends the rows to the ranks of their experts. `sent`: rows in the order of all experts. Returns the received rows in the order
// of this rank's experts, then of the ranks that sent them. `comm` may be null for one rank.
MovedRows to_experts(const at::Tensor& sent, const RowTraffic& traffic, Communicator* comm, const SendOptions& options);
// The way back: from the order that to_experts returns to that of its argument.
MovedRows from_experts(const at::Tensor& rows, const RowTraffic& traffic, Communicator* comm, const SendOptions& options);

}  // namespace zt::moe
