#include "zt/gemm/packed.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/base/words.h"
#include "zt/gemm/flop_watch.h"
#include "zt/gemm/nf4.h"

namespace zt {

PackedKernels::~PackedKernels() = default;

namespace {

std::shared_ptr<const PackedKernels>& registered_kernels() {
  static std::shared_ptr<const PackedKernels> kernels;
  return kernels;
}

const PackedKernels& packed_kernels() {
  const PackedKernels* const kernels = registered_kernels().get();
  if (!kernels) misuse("packed matrices need the module gemm, which is not loaded: require \"zt\" before");
  return *kernels;
}

bool is_operand(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

void check_spec(const PackSpec& spec, int64_t rows, int64_t columns) {
  check_pack_spec(spec);
  if (rows < 0 || columns < 0) misuse("a matrix of {} x {} cannot be packed", rows, columns);
  if (spec.format == PackFormat::panels || columns % spec.group == 0) return;
  misuse("{} columns are no multiple of the group of {}: give a smaller group, or keep this matrix plain", columns, spec.group);
}

void check_matrix(const PackedMatrix& matrix) {
  const int64_t bytes = packed_bytes(matrix.spec, matrix.rows, matrix.columns);
  const at::Tensor& held = matrix.bytes;
  const bool fits = held.defined() && held.scalar_type() == at::kByte && held.dim() == 1 && held.size(0) == bytes &&
                    held.is_contiguous() && (held.is_cpu() || held.is_meta());
  if (!fits) {
    misuse("a packed matrix of {} x {} has {} contiguous bytes on the CPU, got {}", matrix.rows, matrix.columns, bytes,
           held.defined() ? describe(held) : "nothing");
  }
}

bool is_row_major(const at::Tensor& x, int64_t columns) {
  return x.dim() == 2 && x.size(1) == columns && (x.size(1) <= 1 || x.stride(1) == 1) &&
         (x.size(0) <= 1 || x.stride(0) >= x.size(1));
}

void check_product(const at::Tensor& in, int64_t in_columns, const PackedMatrix& w, const at::Tensor& out, int64_t out_columns) {
  check_matrix(w);
  const bool dtypes_fit =
      is_operand(in.scalar_type()) && (out.scalar_type() == in.scalar_type() || out.scalar_type() == at::kFloat);
  if (is_row_major(in, in_columns) && is_row_major(out, out_columns) && in.size(0) == out.size(0) && dtypes_fit &&
      in.device() == out.device() && in.device() == w.bytes.device())
    return;
  misuse(
      "cannot multiply {} into {} by a packed matrix of {} x {}: give row-major [m, {}] and [m, {}] on its device, of float32, "
      "bfloat16 or float16 (the result may be float32)",
      describe(in), describe(out), w.rows, w.columns, in_columns, out_columns);
}

void check_addends(const GemmAddends& addends, const at::Tensor& x, const at::Tensor& out) {
  const auto fits = [&](const at::Tensor& addend) {
    return addend.scalar_type() == x.scalar_type() && addend.device() == x.device();
  };
  const at::Tensor &bias = addends.bias, &residual = addends.residual;
  if (bias.defined() && !(bias.dim() == 1 && bias.size(0) == out.size(1) && bias.is_contiguous() && fits(bias)))
    misuse("a GEMM of {} into {} adds a contiguous bias [{}] of the first one's dtype and device, got {}", describe(x),
           describe(out), out.size(1), describe(bias));
  if (residual.defined() && !(is_row_major(residual, out.size(1)) && residual.size(0) == out.size(0) && fits(residual)))
    misuse(
        "a GEMM of {} into {} adds a row-major residual of the second one's shape and the first one's dtype and device, got {}",
        describe(x), describe(out), describe(residual));
}

// Returns whether there is nothing to multiply. Counts the operations of meta tensors.
bool is_done(const at::Tensor& in, const PackedMatrix& w, const at::Tensor& out, const GemmAddends& addends = {}) {
  if (out.is_meta())
    count_flops(2 * static_cast<double>(in.size(0)) * static_cast<double>(w.rows) * static_cast<double>(w.columns));
  if (out.is_meta() || out.numel() == 0) return true;
  if (in.numel() > 0) return false;
  out.zero_();
  for (const at::Tensor& addend : {addends.bias, addends.residual}) {
    if (addend.defined()) out.add_(addend);
  }
  return true;
}

}  // namespace

void check_pack_spec(const PackSpec& spec) {
  if (spec.format == PackFormat::plain) misuse("a plain matrix is not packed: give a format");
  if (spec.format == PackFormat::panels) {
    if (spec.dtype == at::kFloat || spec.dtype == at::kBFloat16) return;
    misuse("panels are of float32 or bfloat16, not {}", c10::toString(spec.dtype));
  }
  if (spec.group != 32 && spec.group != 64 && spec.group != 128)
    misuse("groups of {} columns cannot be packed: give group = 32, 64 or 128", spec.group);
  if (spec.format == PackFormat::nf4 && spec.group != 64) misuse("nf4 has groups of 64 columns, not of {}", spec.group);
  if (!spec.nested && spec.format != PackFormat::nf4) misuse("{} has no nested scales: leave nested out", word_of(spec.format));
  if (spec.symmetric && spec.format == PackFormat::nf4) misuse("nf4 has one code book: symmetric does not apply");
}

void register_packed_kernels(std::shared_ptr<const PackedKernels> kernels) {
  if (registered_kernels()) misuse("kernels of packed matrices are registered already");
  registered_kernels() = std::move(kernels);
}

int64_t packed_bytes(const PackSpec& spec, int64_t rows, int64_t columns) {
  check_spec(spec, rows, columns);
  return packed_kernels().bytes(spec, rows, columns);
}

void pack(const at::Tensor& weight, const PackedMatrix& into) {
  check_matrix(into);
  const at::ScalarType dtype = weight.scalar_type();
  if (weight.dim() != 2 || weight.size(0) != into.rows || weight.size(1) != into.columns ||
      !(is_operand(dtype) || dtype == at::kDouble))
    misuse("cannot pack {} into a matrix of {} x {}", describe(weight), into.rows, into.columns);
  if (into.bytes.is_meta()) return;
  const at::NoGradGuard no_grad;
  packed_kernels().pack(weight.contiguous(), into);
}

at::Tensor unpack(const PackedMatrix& matrix, at::ScalarType dtype) {
  check_matrix(matrix);
  return packed_kernels().unpack(matrix, dtype);
}

PackedMatrix cut_packed(const PackedMatrix& whole, std::span<const Share> rows, Share columns) {
  check_matrix(whole);
  const auto fits = [](const Share& range, int64_t size) { return range.begin >= 0 && range.count >= 0 && range.end() <= size; };
  if (!fits(columns, whole.columns) || !std::ranges::all_of(rows, [&](const Share& range) { return fits(range, whole.rows); }))
    misuse("a part of a packed matrix of {} x {} lies beyond its end", whole.rows, whole.columns);
  return packed_kernels().cut(whole, rows, columns);
}

void packed_gemm(const at::Tensor& x, const PackedMatrix& w, const at::Tensor& out, Activations activations,
                 const GemmAddends& addends) {
  check_product(x, w.columns, w, out, w.rows);
  if (activations == Activations::int8 && w.spec.format != PackFormat::int8 && w.spec.format != PackFormat::int4)
    misuse("activations of 8 bits are multiplied by int8 and int4 only");
  check_addends(addends, x, out);
  if (!is_done(x, w, out, addends)) packed_kernels().multiply(x, w, out, activations, addends);
}

bool can_join_nf4(std::span<const int64_t> rows, int64_t columns, bool is_nested) {
  return packed_kernels().can_join_nf4(rows, columns, is_nested);
}

void import_nf4(std::span<const Nf4Tensors> parts, const PackedMatrix& into) {
  check_matrix(into);
  packed_kernels().import_nf4(parts, into);
}

void packed_gemm_transposed(const at::Tensor& dy, const PackedMatrix& w, const at::Tensor& dx) {
  check_product(dy, w.rows, w, dx, w.columns);
  if (!is_done(dy, w, dx)) packed_kernels().multiply_transposed(dy, w, dx);
}

}  // namespace zt
