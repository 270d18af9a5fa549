// PowerSGD: a gradient matrix M [n, m] is sent as P [n, r] and Q [m, r], of which M is nearly P Q^T. One step of power iteration
// makes them from the last Q: P = M Q, summed over the ranks and made orthonormal, then Q = M^T P, summed. Sums are linear, so
// the product is P P^T applied to the sum of all M, and each rank keeps M - P P^T M.
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

#include "compress/reduction.h"
#include "zt/base/hash.h"
#include "zt/base/tensor.h"
#include "zt/random/rng.h"

namespace zt::zero {

namespace {

// A rank's part of a parameter, as a matrix of two dims: the first one, and all others together. If low rank would not make the
// part smaller, it is sent as it is.
struct Matrix {
  const ParamInfo* param = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t rank = 0;  // 0: sent as it is

  int64_t numel() const { return rows * columns; }
  int64_t first_message() const { return rank > 0 ? rows * rank : numel(); }
  int64_t second_message() const { return columns * rank; }
  at::Tensor of(const at::Tensor& flat) const { return flat.narrow(0, param->offset, numel()).view({rows, columns}); }
};

Matrix matrix_of(const ParamInfo& param, int64_t rank, const Coord& coord) {
  const std::vector<int64_t> shape = param.local_shape(coord);
  Matrix matrix{&param, shape.empty() ? 1 : shape[0]};
  const int64_t numel = param.local_numel(coord);
  matrix.columns = numel == 0 ? 0 : numel / matrix.rows;
  const int64_t fitting = std::min({rank, matrix.rows, matrix.columns});
  if (param.is_matrix && fitting * (matrix.rows + matrix.columns) < numel) matrix.rank = fitting;
  return matrix;
}

// A rank with a smaller share sends no more than the first one, whose messages give the sizes of buffers.
std::vector<Matrix> matrices_of(const ModelInfo& model, int unit, int64_t rank, const Coord& coord) {
  std::vector<Matrix> list;
  for (const int index : model.units.at(unit).params) {
    const ParamInfo& param = model.params[index];
    if (!param.trainable) continue;
    const Matrix most = matrix_of(param, rank, {}), matrix = matrix_of(param, most.rank, coord);
    if (matrix.numel() > 0) list.push_back(matrix);
  }
  return list;
}

// Gives columns without direction, such as those of a gradient that was zero, random ones. `q`: [columns, rank].
void renew_columns(const at::Tensor& q, const ParamInfo& param, uint64_t seed) {
  const at::Tensor norms = q.norm(2, {0}, true);
  const at::Tensor is_lost = (norms > 0).logical_not();
  if (is_lost.any().item<bool>()) {
    std::vector<double> random(static_cast<size_t>(q.numel()));
    Philox::keyed(seed, Purpose::user, stable_hash(param.name)).normal(0, 0, random);
    const at::Tensor fresh = at::empty(q.sizes(), at::kDouble);
    std::copy(random.begin(), random.end(), fresh.mutable_data_ptr<double>());
    q.copy_(fresh.to(q.options()).where(is_lost.expand_as(q), q));
    return;
  }
  q.div_(norms);
}

class PowerSgd final : public Compressor {
 public:
  PowerSgd(int rank, uint64_t seed) : rank_(rank), seed_(seed), q_(staged_buffer("powersgd_q")) {}

  std::vector<Staged> buffers() const override { return {q_}; }
  int64_t elements(const ModelInfo& model, int unit) const override {
    int64_t elements = 0;
    for (const Matrix& matrix : matrices_of(model, unit, rank_, {})) elements += matrix.second_message();
    return elements;
  }

  int64_t sent_bytes(const ModelInfo& model, int unit, int ranks, bool, at::ScalarType exact) const override {
    int64_t elements = 1;
    for (const Matrix& matrix : matrices_of(model, unit, rank_, {})) elements += matrix.first_message() + matrix.second_message();
    return 2 * (ranks - 1) * elements * size_of(exact) / ranks;
  }

  void reduce(const std::vector<Reduced>& units, Communicator& comm, const StepState& state, bool is_failed) override {
    std::vector<Part> parts = parts_of(units, state);
    const auto options = units.front().residual.options();
    int64_t first = 1, second = 0;
    for (const Part& part : parts) {
      first += part.matrix.first_message();
      second += part.matrix.second_message();
    }
    // The first element counts the ranks that cannot go on.
    const at::Tensor p_message = at::empty({first}, options), q_message = at::empty({second}, options);
    place(parts, p_message, q_message);
    for (const Part& part : parts) send_first(part);
    const at::Tensor sums = p_message.narrow(0, 1, first - 1);
    p_message[0].fill_(is_failed || !std::isfinite(sums.sum(at::kDouble).item<double>()) ? 1 : 0);
    comm.all_reduce(p_message, p_message).synchronize();
    const bool is_usable = p_message[0].item<double>() == 0;
    if (!is_usable) q_message.zero_();
    for (const Part& part : parts) {
      if (is_usable) send_second(part);
    }
    if (second > 0) comm.all_reduce(q_message, q_message).synchronize();
    if (!is_usable) return fail(units, state);
    for (const Reduced& each : units) {
      if (!each.out.is_alias_of(each.unit.grad)) each.out.zero_();
    }
    for (const Part& part : parts) finish(part);
  }

 private:
  // A parameter of a unit, and its place in the messages.
  struct Part {
    const Reduced& unit;
    Matrix matrix;
    at::Tensor last_q;  // [columns, rank]: the buffer
    at::Tensor p, q;    // [rows, rank] and [columns, rank], or [numel] and nothing for what is sent as it is
  };

  // Returns a thin matrix whose columns lie one after the other: with rows of 4 numbers, GEMMs take five times as long.
  static at::Tensor by_columns(const at::Tensor& flat, int64_t columns) { return flat.view({columns, -1}).t(); }

  std::vector<Part> parts_of(const std::vector<Reduced>& units, const StepState& state) const {
    std::vector<Part> parts;
    for (const Reduced& unit : units) {
      const at::Tensor all = state.pass_buffer(q_.next, unit.unit.index);
      int64_t at = 0;
      for (const Matrix& matrix : matrices_of(*state.model, unit.unit.index, rank_, state.links->place().coord)) {
        Part& part = parts.emplace_back(Part{unit, matrix, {}, {}, {}});
        if (matrix.rank == 0) continue;
        part.last_q = by_columns(all.narrow(0, at, matrix.second_message()), matrix.rank);
        at += matrix.second_message();
      }
    }
    return parts;
  }

  static void place(std::vector<Part>& parts, const at::Tensor& p_message, const at::Tensor& q_message) {
    int64_t first = 1, second = 0;
    for (Part& part : parts) {
      const Matrix& matrix = part.matrix;
      part.p = p_message.narrow(0, first, matrix.first_message());
      first += matrix.first_message();
      if (matrix.rank == 0) continue;
      part.p = by_columns(part.p, matrix.rank);
      part.q = by_columns(q_message.narrow(0, second, matrix.second_message()), matrix.rank);
      second += matrix.second_message();
    }
  }

  // P = (G + E) Q, without writing the sum.
  void send_first(const Part& part) const {
    const Matrix& matrix = part.matrix;
    const at::Tensor gradient = matrix.of(part.unit.unit.grad);
    if (matrix.rank == 0) return at::Tensor(part.p).copy_(gradient.view({-1})), void();
    renew_columns(part.last_q, *matrix.param, seed_);
    const at::Tensor q = part.last_q.to(part.p.scalar_type());
    at::Tensor p = part.p;
    at::mm_out(p, gradient.to(p.scalar_type()), q);
    p.addmm_(matrix.of(part.unit.residual), q);
  }

  // M = G + E; P orthonormal; Q = M^T P; E = M - P Q^T.
  static void send_second(const Part& part) {
    const Matrix& matrix = part.matrix;
    if (matrix.rank == 0) return;
    const at::Tensor kept = matrix.of(part.unit.residual);
    kept.add_(matrix.of(part.unit.unit.grad));
    at::Tensor p = part.p, q = part.q;
    p.copy_(std::get<0>(at::linalg_qr(p)));
    at::mm_out(q, kept.t(), p);
    kept.addmm_(p, q.t(), 1, -1);
  }

  // Writes the rows of P Q^T that lie in `out`, and keeps Q for the next step.
  static void finish(const Part& part) {
    const Matrix& matrix = part.matrix;
    const Reduced& to = part.unit;
    const int64_t begin = std::max(to.first, matrix.param->offset),
                  end = std::min(to.first + to.out.numel(), matrix.param->offset + matrix.numel());
    if (matrix.rank > 0) part.last_q.copy_(part.q);
    if (begin >= end) return;
    const int64_t skipped = begin - matrix.param->offset;
    const at::Tensor place = to.out.narrow(0, begin - to.first, end - begin);
    if (matrix.rank == 0) return place.copy_(part.p.narrow(0, skipped, end - begin)), void();
    const int64_t row = skipped / matrix.columns, last_row = (end - matrix.param->offset + matrix.columns - 1) / matrix.columns;
    const at::Tensor rows = at::mm(part.p.narrow(0, row, last_row - row), part.q.t());
    place.copy_(rows.view({-1}).narrow(0, skipped - row * matrix.columns, end - begin));
  }

  int64_t rank_;
  uint64_t seed_;
  Staged q_;  // the last Q of the unit's matrices, one after the other
};

}  // namespace

std::shared_ptr<Compressor> make_powersgd(int rank, uint64_t seed) {
  return std::make_shared<PowerSgd>(rank, seed);
}

}  // namespace zt::zero
