#include "packed/packed_kernels.h"

#include <ATen/ATen.h>

#include "packed/convert.h"
#include "packed/cut.h"
#include "packed/nf4/import_nf4.h"
#include "packed/panel_kernels.h"
#include "packed/product.h"
#include "zt/base/error.h"

namespace zt {

namespace {

class PanelGemmKernels final : public PackedKernels {
 public:
  PanelGemmKernels(Isa isa, bool has_vnni, bool has_bf16) : kernels_(packed::panel_kernels(isa, has_vnni, has_bf16)) {}

  int64_t bytes(const PackSpec& spec, int64_t rows, int64_t columns) const override {
    return packed::pack_layout(spec, rows, columns).bytes;
  }
  void pack(const at::Tensor& weight, const PackedMatrix& into) const override { packed::pack_matrix(weight, into); }
  at::Tensor unpack(const PackedMatrix& matrix, at::ScalarType dtype) const override {
    if (!at::isFloatingType(dtype)) misuse("a packed matrix holds floating-point numbers, not {}", c10::toString(dtype));
    if (matrix.bytes.is_meta()) return at::empty({matrix.rows, matrix.columns}, at::TensorOptions(dtype).device(at::kMeta));
    return packed::unpack_matrix(kernels_, matrix, dtype);
  }
  PackedMatrix cut(const PackedMatrix& whole, std::span<const Share> rows, Share columns) const override {
    return packed::cut_matrix(whole, rows, columns);
  }
  bool can_join_nf4(std::span<const int64_t> rows, int64_t columns, bool is_nested) const override {
    return packed::can_join_nf4(rows, columns, is_nested);
  }
  void import_nf4(std::span<const Nf4Tensors> parts, const PackedMatrix& into) const override { packed::import_nf4(parts, into); }
  void multiply(const at::Tensor& x, const PackedMatrix& w, const at::Tensor& out, Activations activations,
                const GemmAddends& addends) const override {
    packed::multiply(kernels_, x, w, out, activations, addends);
  }
  void multiply_transposed(const at::Tensor& dy, const PackedMatrix& w, const at::Tensor& dx) const override {
    packed::multiply_transposed(kernels_, dy, w, dx);
  }

 private:
  const packed::PanelKernels kernels_;
};

}  // namespace

std::shared_ptr<const PackedKernels> make_packed_kernels(Isa isa, bool has_vnni, bool has_bf16) {
  return std::make_shared<PanelGemmKernels>(isa, has_vnni, has_bf16);
}

}  // namespace zt
