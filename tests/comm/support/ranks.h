// Runs a test's body on every rank of one or several worlds, and inputs with known answers.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "core/group.h"
#include "zt/comm/comm.h"
#include "zt/process/world.h"

namespace zt::test {

// Under mpirun: this process's rank. Else: threads, worlds of 1, 2, 3 and 4 ranks one after the other.
void on_ranks(const std::function<void(Communicator&)>& body);
// The same for a body that makes its communicators itself.
void on_worlds(const std::function<void(const World&)>& body);

// All ranks of the world, in order.
comm::Group whole_group(const World& world, const std::string& name);
// The communicator over all ranks of the world, on the backend that the environment variable ZT_TEST_BACKEND names, else on "mpi"
// under mpirun and on "local" without.
std::shared_ptr<Communicator> world_communicator(const World& world);

const std::vector<at::ScalarType>& all_dtypes();

// What rank r contributes: [n], element i is 1 + (i + r) % 3, for bool (i + r) % 3 == 0. Not to be written to.
at::Tensor contribution(int rank, int64_t n, at::ScalarType dtype);
// The reduction of the contributions of `size` ranks, exact in every dtype for up to 4 ranks.
at::Tensor reduced(int size, int64_t n, at::ScalarType dtype, ReduceOp op);
// Part `part` of `parts` of a flat tensor.
at::Tensor part_of(const at::Tensor& tensor, int part, int parts);
// "float32 n=1000 rank 1 of 2": for failures.
std::string label(const Communicator& comm, at::ScalarType dtype, int64_t n);

}  // namespace zt::test
