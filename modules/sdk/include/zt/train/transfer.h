// Moves the values of a trainer to another one, from any layout to any other, without files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zt {

class Trainer;

// The product of a LoRA adapter's matrices B [rows, rank] and A [rank, columns], which stands for `scale` times a part of the
// matrix `matrix`: its rows from first_row on.
struct AdapterProduct {
  std::string matrix, a, b;  // names in the trainer that gives
  int64_t first_row = 0;
  double scale = 1;
};

struct TransferOptions {
  // Regular expressions (ECMAScript): only the tensors of `to` whose name contains a match of one of them move. Empty: all.
  std::vector<std::string> only = {};
  // Adapters of `from` that `to` does not have: their products are added to their matrices.
  std::vector<AdapterProduct> merged = {};
  // By a name in `to`: the tensor of `from` that it takes, where that has another name.
  std::map<std::string, std::string> sources = {};
  int64_t bucket_bytes = int64_t{64} << 20;  // most bytes of a rank's buffer for what it sends and receives at once
};

struct TransferReport {
  int64_t parameters = 0;   // tensors that moved: parameters, and those that layers change themselves
  int64_t sent_bytes = 0;   // that this rank has sent to others
  int64_t local_bytes = 0;  // that it has copied from its own part of `from` to its own part of `to`
  double seconds = 0;
};

// Gives the tensors of `to` (TrainerTensors::all) the values of the tensors of `from` with the same names. The ranks of both may
// hold any parts of them: sharded, cut along axes, split into stages, shared by a node, or elsewhere than in memory. A trainer
// without a mesh has all on each rank; ranks that have the same elements have equal ones.
//
// The value of an element: what layers of `from` see, if `to` keeps it in the dtype that they have. Otherwise the master's, if
// `from` has one, rounded once to the dtype of `to`. Of a `to` with masters in a wider dtype, the masters take the value first,
// and layers see them rounded. A packed matrix of `to` has the bytes of packing the whole tensor. A packed matrix of `from` gives
// its bytes, if `to` has it in the same format and cuts, else the values that trainer:parameter returns. A matrix with merged
// adapters is the sum of the master and the products, in float32 (float64 for float64 masters), rounded once.
//
// A rank takes an element from itself if it has it, else from one of the ranks that have it: the receivers are spread over these.
// Elements travel in the dtype of `to` where that is narrower. The plan is made in the first transfer between two trainers, and
// kept by `to`. Beside the trainers, a rank holds a bucket at most, and one whole tensor at a time where adapters are merged, a
// packed matrix gives plain values, or the format of `to` depends on the whole matrix (nf4 with nested scales).
//
// Collective over the world, if one of the two trainers has a mesh. Threads: the rank's thread only. Between steps.
// Throws Misuse, with the same text on all ranks, before anything has moved: with everything in which the trainers differ, if a
// pattern of `only` matches no name, if data are out of memory (trainer:evict), or if ranks pass other arguments. An error after
// the first move leaves `to` unusable until a complete transfer or load; all ranks throw then. On a dry trainer it checks only.
TransferReport transfer(Trainer& from, Trainer& to, const TransferOptions& options = {});

}  // namespace zt
