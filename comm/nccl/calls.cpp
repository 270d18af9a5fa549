#include "nccl/calls.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

// One tensor, or pair of tensors, of an operation.
struct NcclPair {
  const NcclSite& site;
  const Operation& operation;
  const at::Tensor &out, &in;

  ncclDataType_t type() const { return nccl_type(in.scalar_type()); }
  ncclRedOp_t op() const { return nccl_op(operation.reduce, in.scalar_type()); }
  bool is_root() const { return site.group.rank == operation.peer; }
  void check(ncclResult_t result) const { check_nccl(site.api, result, name_of(operation.kind)); }
  // Returns where part `part` of the tensor begins; each part has `bytes`.
  static const char* part_of(const at::Tensor& tensor, int part, size_t bytes) {
    return static_cast<const char*>(tensor.const_data_ptr()) + static_cast<size_t>(part) * bytes;
  }
  static char* part_to(const at::Tensor& tensor, int part, size_t bytes) {
    return static_cast<char*>(tensor.mutable_data_ptr()) + static_cast<size_t>(part) * bytes;
  }

  void all_reduce() const {
    check(site.api.all_reduce(in.const_data_ptr(), out.mutable_data_ptr(), static_cast<size_t>(in.numel()), type(), op(),
                              site.comm, site.native()));
  }
  void reduce_scatter() const {
    check(site.api.reduce_scatter(in.const_data_ptr(), out.mutable_data_ptr(), static_cast<size_t>(out.numel()), type(), op(),
                                  site.comm, site.native()));
  }
  void broadcast() const {
    check(site.api.broadcast(out.const_data_ptr(), out.mutable_data_ptr(), out.nbytes(), ncclUint8, operation.peer, site.comm,
                             site.native()));
  }
  void reduce() const {
    check(site.api.reduce(in.const_data_ptr(), is_root() ? out.mutable_data_ptr() : nullptr, static_cast<size_t>(in.numel()),
                          type(), op(), operation.peer, site.comm, site.native()));
  }

  // gather, scatter and all_to_all are one group of sends and receives. A rank also sends to itself.
  void gather() const {
    site.together([&] {
      site.send(in.const_data_ptr(), in.nbytes(), operation.peer);
      for (int r = 0; is_root() && r < site.group.size(); ++r) site.recv(part_to(out, r, in.nbytes()), in.nbytes(), r);
    });
  }
  void scatter() const {
    site.together([&] {
      for (int r = 0; is_root() && r < site.group.size(); ++r) site.send(part_of(in, r, out.nbytes()), out.nbytes(), r);
      site.recv(out.mutable_data_ptr(), out.nbytes(), operation.peer);
    });
  }
  void all_to_all() const {
    site.together([&] {
      size_t sent = 0, received = 0;
      for (size_t r = 0; r < operation.in_splits.size(); ++r) {
        const size_t give = static_cast<size_t>(operation.in_splits[r]) * in.element_size();
        const size_t take = static_cast<size_t>(operation.out_splits[r]) * out.element_size();
        site.send(static_cast<const char*>(in.const_data_ptr()) + sent, give, static_cast<int>(r));
        site.recv(static_cast<char*>(out.mutable_data_ptr()) + received, take, static_cast<int>(r));
        sent += give;
        received += take;
      }
    });
  }
};

void call_one(const NcclSite& site, const Operation& operation, size_t index) {
  static const at::Tensor none;
  const at::Tensor& out = index < operation.out.size() ? operation.out[index] : none;
  const at::Tensor& in = index < operation.in.size() ? operation.in[index] : none;
  const NcclPair pair{site, operation, out, in};
  switch (operation.kind) {
    case CallKind::all_reduce:
      return pair.all_reduce();
    case CallKind::reduce_scatter:
      return pair.reduce_scatter();
    case CallKind::all_gather:
      return site.all_gather(out.mutable_data_ptr(), in.const_data_ptr(), in.nbytes());
    case CallKind::broadcast:
      return pair.broadcast();
    case CallKind::reduce:
      return pair.reduce();
    case CallKind::gather:
      return pair.gather();
    case CallKind::scatter:
      return pair.scatter();
    case CallKind::all_to_all:
      return pair.all_to_all();
    case CallKind::send:
      return site.send(in.const_data_ptr(), in.nbytes(), operation.peer);
    case CallKind::recv:
      return site.recv(out.mutable_data_ptr(), out.nbytes(), operation.peer);
    case CallKind::barrier:
      return;
  }
}

}  // namespace

void NcclSite::send(const void* data, size_t bytes, int peer) const {
  check_nccl(api, api.send(data, bytes, ncclUint8, peer, comm, native()), "send");
}
void NcclSite::recv(void* data, size_t bytes, int peer) const {
  check_nccl(api, api.recv(data, bytes, ncclUint8, peer, comm, native()), "recv");
}
void NcclSite::all_gather(void* out, const void* in, size_t bytes) const {
  check_nccl(api, api.all_gather(in, out, bytes, ncclUint8, comm, native()), "all_gather");
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

void call_nccl(const NcclSite& site, const Operation& operation) {
  const size_t count = std::max(operation.in.size(), operation.out.size());
  if (count == 1) return call_one(site, operation, 0);
  site.together([&] {
    for (size_t i = 0; i < count; ++i) call_one(site, operation, i);
  });
}

}  // namespace zt::comm
