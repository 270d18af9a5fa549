#include "muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "flat/adam.h"
#include "flat/betas.h"
#include "tensor_optimizer.h"
#include "zt/base/regex.h"
#include "zt/gemm/gemm.h"
#include "zt/model/precision.h"

namespace zt::optim {

namespace {

struct AdamWPart {
  std::string match = "embed|head";
  std::optional<double> lr, weight_decay;
  Betas betas{0.9, 0.999};
  double eps = 1e-8;
};

struct MuonOptions : CommonOptions {
  MuonOptions() { weight_decay = 0.1; }
  double momentum = 0.95, eps = 1e-7;
  bool nesterov = true;
  int ns_steps = 5;
  std::vector<double> ns_coefficients{3.4445, -4.7750, 2.0315};
  std::string ns_dtype = "bf16", adjust_lr = "original";
  Value::Table adamw;
};

// Makes the rows or columns of x [rows, columns], rows <= columns, orthogonal up to the error of the iterations of Newton and
// Schulz: all singular values come near 1. `x` is scratch.
at::Tensor iterate(at::Tensor x, const MuonOptions& options) {
  const auto& c = options.ns_coefficients;
  at::Tensor gram = at::empty({x.size(0), x.size(0)}, x.options()), polynomial = at::empty_like(gram), next = at::empty_like(x);
  for (int step = 0; step < options.ns_steps; ++step) {
    gemm(GemmKind::forward, x, x.t(), gram);
    polynomial.copy_(gram);
    gemm(GemmKind::forward, gram, gram, polynomial, c[1], c[2]);
    next.copy_(x);
    gemm(GemmKind::forward, polynomial, x, next, c[0]);
    std::swap(x, next);
  }
  return x;
}

// Returns the batch of matrices, [n, rows, columns], each made orthogonal in `dtype`.
at::Tensor orthogonal(const at::Tensor& update, const MuonOptions& options, at::ScalarType dtype) {
  const bool is_tall = update.size(1) > update.size(2);
  at::Tensor all = update.to(dtype);
  all = all / all.flatten(1).norm(2, 1).clamp_min(options.eps).view({-1, 1, 1});
  for (const at::Tensor& matrix : all.unbind()) {
    const at::Tensor x = is_tall ? matrix.t() : matrix;
    x.copy_(iterate(x.clone(), options));
  }
  return all;
}

class Muon final : public TensorOptimizer {
 public:
  Muon(const MuonOptions& options, const AdamWPart& adamw, Isa isa)
      : TensorOptimizer("muon", {"momentum_buffer", "exp_avg", "exp_avg_sq"}, options),
        options_(options),
        dtype_(parse_float_type(options.ns_dtype, "optim.muon.ns_dtype")),
        elementwise_(adamw.match, "optim.muon.adamw.match"),
        adamw_lr_(adamw.lr.value_or(options.lr)) {
    Value::Table inner{{"lr", adamw_lr_},
                       {"betas", Value::List(adamw.betas.begin(), adamw.betas.end())},
                       {"eps", adamw.eps},
                       {"weight_decay", adamw.weight_decay.value_or(options.weight_decay)},
                       {"decay_all", options.decay_all}};
    if (!options.groups.empty()) inner["groups"] = Value::List(options.groups.begin(), options.groups.end());
    adamw_ = make_adamw(inner, isa);
  }

  Scope scope(const ParamInfo& param) const override {
    const bool is_matrix = param.is_matrix && param.shape.size() >= 2 && !elementwise_.is_found_in(param.name);
    return is_matrix ? Scope::tensor : Scope::element;
  }
  std::vector<StateInfo> states_of(const ParamInfo& param) const override {
    if (scope(param) == Scope::tensor) return {{"momentum_buffer", param.shape}};
    return adamw_->states_of(param);
  }
  // The multiplications of the iteration: twice the smaller side squared by the larger one, and the smaller side cubed.
  double work_of(const ParamInfo& param) const override {
    const std::vector<int64_t>& shape = param.shape;
    const auto rows = static_cast<double>(shape[shape.size() - 2]), columns = static_cast<double>(shape.back());
    const double small = std::min(rows, columns), large = std::max(rows, columns);
    return static_cast<double>(param.numel()) / (rows * columns) * small * small * (2 * large + small);
  }
  void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments, const Scalars& scalars) const override {
    Scalars own = scalars;
    own.lr *= lr() > 0 ? adamw_lr_ / lr() : 0;
    adamw_->step(shard, grad, segments, own);
  }

 private:
  void update(const OwnedTensor& tensor, const at::Tensor& grad, const TensorRate& rate) const override {
    const at::Tensor& buffer = tensor.state.at("momentum_buffer");
    at::Tensor(buffer).lerp_(grad, 1 - options_.momentum);
    const at::Tensor direction = options_.nesterov ? grad.lerp(buffer, options_.momentum) : buffer;
    const int64_t rows = direction.size(-2), columns = direction.size(-1);
    const bool is_double = tensor.values.scalar_type() == at::kDouble;
    const at::Tensor change = orthogonal(direction.reshape({-1, rows, columns}), options_, is_double ? at::kDouble : dtype_);
    const auto a = static_cast<double>(rows), b = static_cast<double>(columns);
    const double ratio = options_.adjust_lr == "original" ? std::sqrt(std::max(1.0, a / b)) : 0.2 * std::sqrt(std::max(a, b));
    at::Tensor values = tensor.values;
    values.mul_(1 - rate.lr * rate.weight_decay);
    values.add_(change.reshape(values.sizes()), -rate.lr * ratio);
  }

  MuonOptions options_;
  at::ScalarType dtype_;
  Regex elementwise_;
  double adamw_lr_;
  std::shared_ptr<Optimizer> adamw_;
};

AdamWPart parse_adamw(const Value::Table& given) {
  return Schema<AdamWPart>("optim.muon.adamw")
      .optional("match", &AdamWPart::match, "pattern of the names of matrices that AdamW updates")
      .optional("lr", &AdamWPart::lr, "its learning rate; by default that of muon", at_least(0))
      .optional("betas", &AdamWPart::betas, "decay rates of its averages", check_betas)
      .optional("eps", &AdamWPart::eps, "added to the square root of the averaged square", above(0))
      .optional("weight_decay", &AdamWPart::weight_decay, "its weight decay; by default that of muon", at_least(0))
      .parse(Value(given));
}

}  // namespace

std::shared_ptr<Optimizer> make_muon(const Value& value, Isa isa) {
  using Options = MuonOptions;
  const auto has_three = [](const std::vector<double>& numbers) {
    return numbers.size() == 3 ? std::string() : std::string("must be three numbers");
  };
  return common_options(Schema<Options>("optim.muon"))
      .optional("momentum", &Options::momentum, "decay rate of the momentum buffer", between(0, 1))
      .optional("nesterov", &Options::nesterov, "use Nesterov momentum")
      .optional("ns_steps", &Options::ns_steps, "iterations that make a matrix orthogonal", between(1, 100))
      .optional("ns_coefficients", &Options::ns_coefficients, "coefficients of the iteration's polynomial",
                Check<std::vector<double>>(has_three))
      .optional("eps", &Options::eps, "least norm by which a matrix is divided", above(0))
      .optional("ns_dtype", &Options::ns_dtype, "type of the iteration's GEMMs for float32 parameters", one_of({"bf16", "fp32"}))
      .optional("adjust_lr", &Options::adjust_lr, "how the rate depends on the shape", one_of({"original", "match_rms_adamw"}))
      .optional("adamw", &Options::adamw,
                "options of AdamW, which updates what is no matrix: {match, lr, betas, eps, weight_decay}")
      .make(value, [&](const Options& o) {
        const AdamWPart adamw = parse_adamw(o.adamw);
        if (o.lr == 0 && adamw.lr.value_or(0) > 0)
          misuse("optim.muon: the schedule scales lr, which is 0, and adamw.lr = {} in the same proportion: give lr above 0",
                 *adamw.lr);
        return std::make_shared<Muon>(o, adamw, isa);
      });
}

}  // namespace zt::optim
