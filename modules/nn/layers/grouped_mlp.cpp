#include "grouped_mlp.h"

#include <ATen/ops/_grouped_mm.h>

#include "layers.h"
#include "parts/function.h"
#include "zt/base/options.h"
#include "zt/gemm/packed_stack.h"

namespace zt::nn {

namespace {

// The rows of one group.
struct RowGroup {
  int64_t group = 0, first = 0, count = 0;

  at::Tensor rows_of(const at::Tensor& x) const { return x.narrow(0, first, count); }
  // Returns the group's slice of a parameter, or an undefined tensor if there is no parameter.
  at::Tensor slice_of(const at::Tensor& param) const {
    if (!param.defined()) return param;
    const at::Tensor packed = packed_slice(param, group);
    return packed.defined() ? packed : param.select(0, group);
  }
};

// Returns all groups, in order. Meta tensors have no values, so all their rows are in the first group: neither shapes nor the
// number of operations depend on how the rows are divided.
std::vector<RowGroup> divided(const at::Tensor& rows, const at::Tensor& group_rows, int64_t groups) {
  if (group_rows.scalar_type() != at::kLong || group_rows.sizes() != at::IntArrayRef{groups}) {
    misuse("nn.grouped_mlp takes group_rows as int64 [{}], the number of rows of each group on this rank, got {}", groups,
           describe(group_rows));
  }
  const int64_t total = rows.size(0);
  std::vector<int64_t> counts(groups, 0);
  if (rows.is_meta()) {
    counts.front() = total;
  } else {
    if (!group_rows.is_cpu()) misuse("nn.grouped_mlp reads group_rows on the CPU, got {}: copy it there", describe(group_rows));
    const at::Tensor values = group_rows.contiguous();
    std::copy_n(values.const_data_ptr<int64_t>(), groups, counts.begin());
  }
  std::vector<RowGroup> all;
  int64_t first = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > total - first) break;
    all.push_back({static_cast<int64_t>(all.size()), first, count});
    first += count;
  }
  if (first != total || all.size() != counts.size()) {
    misuse("nn.grouped_mlp: group_rows = [{}] does not divide {} rows: give a number of at least 0 for each group, {} in total",
           fmt::join(counts, ", "), total, total);
  }
  return all;
}

// The state of the backward, apart from the saved input and the saved input of the activation.
struct GroupedMlpState {
  Activation activation;
  AffineValues up, down;
  AffineGradient up_gradient, down_gradient;
  std::vector<RowGroup> groups;
  size_t parameters;           // their number
  at::Tensor group_ends = {};  // int32 [groups] on the device of the rows, for grouped GEMMs; undefined: one GEMM per group
};

// Returns the end of each group's rows.
at::Tensor ends_of(const std::vector<RowGroup>& groups, at::Device device) {
  std::vector<int32_t> ends;
  for (const RowGroup& group : groups) ends.push_back(static_cast<int32_t>(group.first + group.count));
  return at::tensor(ends, at::kInt).to(device);
}

struct GroupedMlpFunction : torch::autograd::Function<GroupedMlpFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(AutogradContext* node, const at::Tensor& x, at::TensorList /*parameters*/, GroupedMlpState state) {
    const at::Tensor rows = x.contiguous();
    const auto [pre, out] = state.group_ends.defined() ? by_grouped_gemm(state, rows) : by_group(state, rows);
    node->save_for_backward({rows, pre});
    keep(node, std::move(state));
    return out;
  }

  static variable_list backward(AutogradContext* node, variable_list grads) {
    const auto& state = kept<GroupedMlpState>(node);
    const auto saved = node->get_saved_variables();
    const at::Tensor dy = grads[0].contiguous(), up_bias = state.up.bias;
    const bool is_grouped = state.group_ends.defined();
    at::Tensor all_dpre;                               // of all groups, for a grouped GEMM
    std::vector<at::Tensor> dys, values, dpres, rows;  // by group
    const auto add_group = [&](const RowGroup& group, at::Tensor value, at::Tensor dpre) {
      dys.push_back(group.rows_of(dy));
      rows.push_back(group.rows_of(saved[0]));
      values.push_back(std::move(value));
      dpres.push_back(std::move(dpre));
    };
    if (is_grouped) {
      const at::Tensor dvalue = at::_grouped_mm(dy, state.down.weight, state.group_ends);
      const ActivationGradient inner = activate_backward(state.activation, dvalue, saved[1], {});
      for (const RowGroup& group : state.groups) add_group(group, group.rows_of(inner.value), group.rows_of(inner.pre));
      all_dpre = inner.pre;
    } else {
      for (const RowGroup& group : state.groups) {
        const at::Tensor dvalue = affine_input_gradient(group.rows_of(dy), group.slice_of(state.down.weight));
        ActivationGradient inner = activate_backward(state.activation, dvalue, group.rows_of(saved[1]), group.slice_of(up_bias));
        add_group(group, std::move(inner.value), std::move(inner.pre));
      }
    }
    // One GEMM per group on every device: it adds to the sink in the sink's dtype, which a grouped one cannot.
    state.down_gradient.add_groups(std::move(dys), std::move(values));
    at::Tensor dx;
    if (node->needs_input_grad(0)) {
      dx = is_grouped ? at::_grouped_mm(all_dpre, state.up.weight, state.group_ends) : input_gradient(state, dpres, saved[0]);
    }
    state.up_gradient.add_groups(std::move(dpres), std::move(rows));
    variable_list results{dx};
    results.resize(1 + state.parameters + 1);
    return results;
  }

 private:
  struct Forward {
    at::Tensor pre, out;  // the input of the activation, and the result
  };

  static Forward by_group(const GroupedMlpState& state, const at::Tensor& rows) {
    const at::Tensor &up = state.up.weight, &down = state.down.weight;
    const at::Tensor &up_bias = state.up.bias, &down_bias = state.down.bias;
    const Forward result{at::empty({rows.size(0), up.size(1)}, rows.options()), at::empty_like(rows)};
    for (const RowGroup& group : state.groups) {
      if (group.count == 0) continue;
      const at::Tensor inner = group.rows_of(result.pre);
      write_affine_rows(inner, group.rows_of(rows), group.slice_of(up), {});
      const at::Tensor value = activate(state.activation, inner, group.slice_of(up_bias));
      write_affine_rows(group.rows_of(result.out), value, group.slice_of(down), group.slice_of(down_bias));
    }
    return result;
  }

  static Forward by_grouped_gemm(const GroupedMlpState& state, const at::Tensor& rows) {
    const at::Tensor pre = at::_grouped_mm(rows, state.up.weight.transpose(1, 2), state.group_ends);
    const at::Tensor value = activate(state.activation, pre, {});
    return {pre, at::_grouped_mm(value, state.down.weight.transpose(1, 2), state.group_ends)};
  }

  static at::Tensor input_gradient(const GroupedMlpState& state, const std::vector<at::Tensor>& dpres, const at::Tensor& rows) {
    const at::Tensor dx = at::empty_like(rows);
    for (const RowGroup& group : state.groups) {
      const at::Tensor& dpre = dpres[static_cast<size_t>(group.group)];
      write_affine_input_gradient(group.rows_of(dx), dpre, group.slice_of(state.up.weight));
    }
    return dx;
  }
};

// Makes the parameters of one matmul of all groups on this rank.
Affine make_group_affine(const std::string& prefix, const GroupedMlpOptions& options, int64_t in, int64_t out, double std) {
  const int64_t groups = options.groups;
  Affine affine;
  affine.weight = make_param(prefix + "weight", {groups, out, in}, init_normal(0, std), true, {"group", "out", "in"});
  if (!options.grouped_gemm.value_or(false)) affine.weight->packing = Packing::any;
  if (options.bias) affine.bias = make_param(prefix + "bias", {groups, out}, init_zeros(), false, {"group", "out"});
  if (!options.axis) return affine;
  const AxisPlacement sharded{.axis = *options.axis, .placement = Placement::sharded, .dim = 0, .parts = options.parts};
  for (const auto& param : affine.params()) param->placements = {sharded};
  return affine;
}

std::vector<int64_t> counts_of(const std::vector<RowGroup>& groups) {
  std::vector<int64_t> counts;
  for (const RowGroup& group : groups) counts.push_back(group.count);
  return counts;
}

void check_parts(const GroupedMlpOptions& options) {
  if (options.groups % options.parts != 0) {
    misuse("nn.grouped_mlp: {} groups cannot be divided among {} parts evenly: make parts a divisor of groups", options.groups,
           options.parts);
  }
  if (options.parts > 1 && !options.axis)
    misuse("nn.grouped_mlp: parts = {} needs option 'axis', the mesh axis whose ranks hold the parts", options.parts);
  if (options.tensor && options.axis == options.tensor->name)
    misuse(
        "nn.grouped_mlp: axis '{}' is given as `axis`, whose ranks hold other groups, and as `tensor`, whose ranks share each group: "
        "give two axes, or leave one out",
        *options.axis);
}

}  // namespace

GroupedMlp::GroupedMlp(const GroupedMlpOptions& options)
    : activation_(options.activation), grouped_gemm_(options.grouped_gemm), tensor_(options, "nn.grouped_mlp") {
  check_parts(options);
  tensor_.check_enough(options.ffn, "inner columns", "nn.grouped_mlp");
  if (options.bias && options.grouped_gemm.value_or(false))
    misuse("nn.grouped_mlp: grouped_gemm adds no biases: set bias = false, or leave grouped_gemm out");
  up_ = make_group_affine("up.", options, options.hidden, columns_before(activation_, options.ffn), options.std);
  down_ = make_group_affine("down.", options, options.ffn, options.hidden, options.residual_std);
  const auto halves = static_cast<size_t>(columns_before(activation_, options.ffn) / options.ffn);
  tensor_.cut_rows(up_, std::vector<CutGroup>(halves, {options.ffn, 1}), 1);
  tensor_.cut_columns(down_, {{options.ffn, 1}}, 1);
}

// Throws Misuse unless LibTorch's grouped GEMM takes such rows: it reads rows of matrices at multiples of 16 bytes.
void GroupedMlp::check_grouped_gemm(const at::Tensor& rows) const {
  if (rows.scalar_type() == at::kDouble)
    misuse("nn.grouped_mlp: grouped_gemm takes float32, bfloat16 or float16, got {}: leave grouped_gemm out", describe(rows));
  const int64_t hidden = up_.weight->shape[2], ffn = down_.weight->shape[2];
  const int64_t multiple = 16 / static_cast<int64_t>(rows.element_size());
  if (are_multiples_of(multiple)) return;
  const std::string of_ranks =
      tensor_.is_cut() ? fmt::format(" on each of the {} ranks of axis '{}'", tensor_.ranks(), tensor_.name()) : "";
  misuse(
      "nn.grouped_mlp: grouped_gemm takes hidden and ffn that are multiples of {} in {}{}, got hidden = {}, ffn = {}: change them, "
      "or leave grouped_gemm out",
      multiple, dtype_name(rows.scalar_type()), of_ranks, hidden, ffn);
}

bool GroupedMlp::are_multiples_of(int64_t multiple) const {
  const int64_t hidden = up_.weight->shape[2], ffn = down_.weight->shape[2];
  return hidden % multiple == 0 && ffn % (multiple * tensor_.ranks()) == 0;
}

bool GroupedMlp::uses_grouped_gemm(const at::Tensor& rows) const {
  if (grouped_gemm_.value_or(false)) check_grouped_gemm(rows);
  if (rows.is_meta() || rows.size(0) == 0 || up_.weight->pack.format != PackFormat::plain) return false;
  const bool serves = rows.is_cuda() && rows.scalar_type() == at::kBFloat16 && !up_.bias && are_multiples_of(8);
  return grouped_gemm_.value_or(serves);
}

std::vector<at::Tensor> GroupedMlp::forward(at::TensorList in, Context& context) {
  const int64_t groups = context.param(*up_.weight).size(0), hidden = up_.weight->shape[2];
  if (in[0].dim() != 2 || in[0].size(1) != hidden)
    misuse("'{}' takes rows [n, {}], got {}", up_.weight->name, hidden, describe(in[0]));
  const at::Tensor rows = tensor_.enter(in_dtype_of(*up_.weight, in[0], context), context);
  const std::vector<RowGroup> row_groups = divided(rows, in[1], groups);
  const Affine down = tensor_.is_cut() ? down_.without_bias() : down_;  // if cut, the biases are added to the sum
  variable_list parameters = up_.parameters(context);
  for (const at::Tensor& leaf : down.parameters(context)) parameters.push_back(leaf);
  const AffineValues of_up = up_.values(context, rows, {}), of_down = down.values(context, rows, {});
  GroupedMlpState state{.activation = activation_,
                        .up = of_up,
                        .down = of_down,
                        .up_gradient = AffineGradient(up_, of_up, context),
                        .down_gradient = AffineGradient(down, of_down, context),
                        .groups = row_groups,
                        .parameters = parameters.size()};
  if (uses_grouped_gemm(rows)) state.group_ends = ends_of(row_groups, rows.device());
  const at::Tensor out = run_function<GroupedMlpFunction>(rows, at::TensorList(parameters), std::move(state));
  if (!tensor_.is_cut()) return {out};
  return {add_group_bias(tensor_.leave(out, context), down_.bias, counts_of(row_groups), context)};
}

std::shared_ptr<Layer> make_grouped_mlp(const Value& value) {
  static const auto kSchema =
      tensor_sum_options(
          mlp_options(Schema<GroupedMlpOptions>("nn.grouped_mlp")
                          .required("groups", &GroupedMlpOptions::groups, "number of MLPs on all ranks", at_least(1))),
          "the columns inside each MLP are cut")
          .optional("axis", &GroupedMlpOptions::axis, "mesh axis whose ranks hold groups / parts MLPs each")
          .optional("parts", &GroupedMlpOptions::parts, "number of ranks of that axis", at_least(1))
          .optional("grouped_gemm", &GroupedMlpOptions::grouped_gemm, "one GEMM for the rows of all groups, without biases");
  return kSchema.make(value, [](const GroupedMlpOptions& o) { return std::make_shared<GroupedMlp>(o); });
}

}  // namespace zt::nn
