#include "transfer_packing.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "train/store/owned_data.h"
#include "zt/base/error.h"
#include "zt/gemm/packed_stack.h"

namespace zt {

namespace {

constexpr int64_t kPanelRows = 16;  // modules/gemm/PACKED.md

class PackingTarget final : public TransferTarget {
 public:
  PackingTarget(const Store& store, int param, std::vector<PackedRows> rows, at::ScalarType dtype)
      : store_(store),
        param_(param),
        shape_(store.info(param).local_shape(store.place().coord)),
        rows_(std::move(rows)),
        options_(at::TensorOptions(store.state().links->device()).dtype(dtype)) {}

  void take(const TransferRun& run, const at::Tensor& values) override {
    const PackedRows& rows = rows_[run.part];
    at::Tensor& staged = staged_[run.part];
    if (!staged.defined()) staged = at::empty({rows.count * columns()}, options_);
    TransferRun here = run;
    here.to -= first_element(rows);
    flat_target(staged)->take(here, values);
  }

  void complete(int32_t part) override {
    const PackedRows& rows = rows_[part];
    const auto staged = staged_.find(part);
    if (staged == staged_.end()) fault("no element of a part of '{}' has arrived", store_.info(param_).name);
    const at::Tensor values = staged->second.cpu().view({rows.count, columns()});
    staged_.erase(staged);
    if (!at::isfinite(values).all().item<bool>())
      misuse("parameter '{}' is packed, and no packed format holds values that are not finite: some of these are not",
             store_.info(param_).name);
    const at::Tensor bytes = at::zeros({rows.bytes}, at::kByte);
    with_context([&] { return fmt::format("parameter '{}'", store_.info(param_).name); },
                 [&] {
                   pack(values, PackedMatrix{store_.info(param_).pack, rows.count, columns(), bytes});
                 });
    write(rows, bytes);
  }

 private:
  int64_t columns() const { return shape_.back(); }
  int64_t first_element(const PackedRows& rows) const {
    return (rows.matrix * shape_[shape_.size() - 2] + rows.first) * columns();
  }

  // Sets those bytes that this rank has.
  void write(const PackedRows& rows, const at::Tensor& bytes) const {
    const Unit& unit = store_.unit_of(param_);
    if (!unit.owns_shard() && !unit.is_node_shared()) {
      unit.full.narrow(0, store_.info(param_).offset + rows.byte, rows.bytes).copy_(bytes);
      return;
    }
    const OwnedRun run = store_.owned(param_);
    const int64_t begin = std::max(rows.byte, run.first), end = std::min(rows.byte + rows.bytes, run.first + run.count);
    if (begin < end)
      owned_data::write(store_.state(), unit, "shard", run.place + begin - run.first,
                        bytes.narrow(0, begin - rows.byte, end - begin));
  }

  const Store& store_;
  const int param_;
  const std::vector<int64_t> shape_;  // of what this rank holds
  const std::vector<PackedRows> rows_;
  const at::TensorOptions options_;
  std::map<int32_t, at::Tensor> staged_;  // by part
};

}  // namespace

bool packs_by_rows(const PackSpec& spec) {
  return spec.format != PackFormat::nf4 || !spec.nested;
}

std::vector<PackedRows> packed_rows(const PackSpec& spec, const std::vector<int64_t>& shape, Share wanted, int64_t most) {
  const int64_t rows = shape[shape.size() - 2], columns = shape.back(), matrices = shape.size() == 3 ? shape[0] : 1;
  std::vector<PackedRows> parts;
  if (rows == 0 || columns == 0 || matrices == 0) return parts;
  const int64_t of_matrix = packed_bytes(spec, shape) / matrices;
  const int64_t at_once = std::max<int64_t>(1, most / (kPanelRows * columns)) * kPanelRows;
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t count = std::min(at_once, rows - first);
      const int64_t byte = matrix * of_matrix + (first > 0 ? packed_bytes(spec, first, columns) : 0);
      const int64_t bytes = packed_bytes(spec, count, columns);
      if (byte < wanted.end() && byte + bytes > wanted.begin) parts.push_back({matrix, first, count, byte, bytes});
    }
  }
  return parts;
}

std::shared_ptr<TransferTarget> packing_target(const Store& store, int param, std::vector<PackedRows> rows,
                                               at::ScalarType dtype) {
  return std::make_shared<PackingTarget>(store, param, std::move(rows), dtype);
}

}  // namespace zt
