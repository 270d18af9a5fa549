// Runs a test's body on every rank of one or several worlds. Makes inputs with known results.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/process/world.h"

namespace zt::test {

// Calls `body` on this process's rank under mpirun, else on threads: worlds of 1, 2, 3 and 4 ranks, one after the other.
void on_ranks(const std::function<void(Communicator&)>& body);
// As on_ranks, for a body that makes its communicators itself.
void on_worlds(const std::function<void(const World&)>& body);

// Makes the communicator over all ranks of the world, on the backend that the environment variable ZT_TEST_BACKEND names, else on
// "mpi" under mpirun and on "local" without.
std::shared_ptr<Communicator> world_communicator(const World& world);

const std::vector<at::ScalarType>& all_dtypes();

// Returns the contribution of rank r: [n], element i is 1 + (i + r) % 3, for bool (i + r) % 3 == 0. Do not write to it.
at::Tensor contribution(int rank, int64_t n, at::ScalarType dtype);
// Returns the reduction of the contributions of `size` ranks, exact in every dtype for up to 4 ranks. Do not write to it.
at::Tensor reduced(int size, int64_t n, at::ScalarType dtype, ReduceOp op);
// Returns part `part` of `parts` equal parts of a flat tensor.
at::Tensor part_of(const at::Tensor& tensor, int part, int parts);
// Returns "float32 n=1000 rank 1 of 2 on mpi", for the messages of failed tests.
std::string label(const Communicator& comm, at::ScalarType dtype, int64_t n);

}  // namespace zt::test
