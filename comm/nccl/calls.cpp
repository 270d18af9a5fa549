#include "nccl/calls.h"

#include "zt/error.h"
#include "zt/tensor.h"

namespace zt::comm {

namespace {

struct Call {
  const NcclApi& api;
  const Operation& operation;
  const Group& group;
  ncclComm_t comm;
  cudaStream_t stream;
  const at::Tensor &out, &in;

  void check(ncclResult_t result) const { check_nccl(api, result, name_of(operation.kind)); }

  // What only moves data moves bytes: any type, also those NCCL does not know.
  void send(const at::Tensor& tensor, size_t offset, size_t bytes, int peer) const {
    check(api.send(static_cast<const char*>(tensor.const_data_ptr()) + offset, bytes, ncclUint8, peer, comm, stream));
  }
  void recv(const at::Tensor& tensor, size_t offset, size_t bytes, int peer) const {
    check(api.recv(static_cast<char*>(tensor.mutable_data_ptr()) + offset, bytes, ncclUint8, peer, comm, stream));
  }

  // gather, scatter, all_to_all: one group of sends and receives, the rank itself among its peers.
  void to_root() const {
    check(api.group_start());
    send(in, 0, in.nbytes(), operation.peer);
    for (int r = 0; group.rank == operation.peer && r < group.size(); ++r)
      recv(out, static_cast<size_t>(r) * in.nbytes(), in.nbytes(), r);
    check(api.group_end());
  }
  void from_root() const {
    check(api.group_start());
    for (int r = 0; group.rank == operation.peer && r < group.size(); ++r)
      send(in, static_cast<size_t>(r) * out.nbytes(), out.nbytes(), r);
    recv(out, 0, out.nbytes(), operation.peer);
    check(api.group_end());
  }
  void exchange() const {
    check(api.group_start());
    size_t sent = 0, received = 0;
    for (size_t r = 0; r < operation.in_splits.size(); ++r) {
      const size_t give = static_cast<size_t>(operation.in_splits[r]) * in.element_size();
      const size_t take = static_cast<size_t>(operation.out_splits[r]) * out.element_size();
      send(in, sent, give, static_cast<int>(r));
      recv(out, received, take, static_cast<int>(r));
      sent += give;
      received += take;
    }
    check(api.group_end());
  }

  void reduce_to(void* to) const {
    check(api.reduce(in.const_data_ptr(), to, static_cast<size_t>(in.numel()), nccl_type(in.scalar_type()),
                     nccl_op(operation.reduce, in.scalar_type()), operation.peer, comm, stream));
  }
};

}  // namespace

void check_nccl(const NcclApi& api, ncclResult_t result, const char* doing) {
  if (result != ncclSuccess) fault("NCCL failed in {}: {} (NCCL_DEBUG=INFO tells more)", doing, api.get_error_string(result));
}

ncclDataType_t nccl_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    case at::kInt:
      return ncclInt32;
    case at::kUInt32:
      return ncclUint32;
    case at::kLong:
      return ncclInt64;
    case at::kUInt64:
      return ncclUint64;
    default:
      misuse("NCCL cannot reduce tensors of type {}: convert to a float or to a 32-bit integer", dtype_name(dtype));
  }
}

ncclRedOp_t nccl_op(ReduceOp op, at::ScalarType dtype) {
  const bool is_bool = dtype == at::kBool;
  switch (op) {
    case ReduceOp::sum:
      return is_bool ? ncclMax : ncclSum;
    case ReduceOp::product:
      return is_bool ? ncclMin : ncclProd;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
  }
  return ncclSum;
}

void call_nccl(const NcclApi& api, const Operation& operation, size_t index, const Group& group, ncclComm_t comm,
               cudaStream_t stream) {
  static const at::Tensor none;
  const at::Tensor& out = index < operation.out.size() ? operation.out[index] : none;
  const at::Tensor& in = index < operation.in.size() ? operation.in[index] : none;
  const Call call{api, operation, group, comm, stream, out, in};
  const auto count = [](const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); };
  switch (operation.kind) {
    case Kind::all_reduce:
      return call.check(api.all_reduce(in.const_data_ptr(), out.mutable_data_ptr(), count(in), nccl_type(in.scalar_type()),
                                       nccl_op(operation.reduce, in.scalar_type()), comm, stream));
    case Kind::reduce_scatter:
      return call.check(api.reduce_scatter(in.const_data_ptr(), out.mutable_data_ptr(), count(out), nccl_type(in.scalar_type()),
                                           nccl_op(operation.reduce, in.scalar_type()), comm, stream));
    case Kind::all_gather:
      return call.check(api.all_gather(in.const_data_ptr(), out.mutable_data_ptr(), in.nbytes(), ncclUint8, comm, stream));
    case Kind::broadcast:
      return call.check(
          api.broadcast(out.const_data_ptr(), out.mutable_data_ptr(), out.nbytes(), ncclUint8, operation.peer, comm, stream));
    case Kind::reduce:
      return call.reduce_to(group.rank == operation.peer ? out.mutable_data_ptr() : nullptr);
    case Kind::gather:
      return call.to_root();
    case Kind::scatter:
      return call.from_root();
    case Kind::all_to_all:
      return call.exchange();
    case Kind::send:
      return call.send(in, 0, in.nbytes(), operation.peer);
    case Kind::recv:
      return call.recv(out, 0, out.nbytes(), operation.peer);
    case Kind::barrier:
      return;
  }
}

}  // namespace zt::comm
