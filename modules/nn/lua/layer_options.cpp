#include "layer_options.h"

#include "parts/params.h"
#include "zt/base/tensor.h"
#include "zt/model/token_options.h"

namespace zt::nn {

namespace {

std::shared_ptr<Param> param_of(const std::string& name, const std::string& path, const Value& value) {
  const auto* tensor = value.get_if<at::Tensor>();
  if (tensor && !tensor->is_floating_point())
    misuse("{} must be a floating-point tensor or a Param, got {}", path, describe(*tensor));
  if (!tensor) wrong_type(path, "a floating-point tensor or a Param", value);
  return make_param(name, tensor->sizes().vec(), init_tensor(*tensor), tensor->dim() >= 2, {});
}

struct CutOptions {
  std::shared_ptr<Axis> axis;
  int dim = 0;
  std::vector<Value> groups;
};

struct CutParamOptions {
  Value values;
  Value cut;
};

CutGroup read_group(const std::string& path, const Value& value) {
  if (const auto* rows = value.get_if<int64_t>()) return {*rows, 1};
  return Schema<CutGroup>(path)
      .required("size", &CutGroup::size, "number of rows", at_least(0))
      .optional("unit", &CutGroup::unit, "rows that stay together, such as those of a head", at_least(1))
      .parse(value);
}

AxisPlacement read_cut(const std::string& path, const Value& value) {
  const CutOptions cut = Schema<CutOptions>(path)
                             .required("axis", &CutOptions::axis, "mesh axis whose ranks have a share each")
                             .optional("dim", &CutOptions::dim, "the dim that is cut, from 0", at_least(0))
                             .optional("groups", &CutOptions::groups, "consecutive rows that are cut each by itself")
                             .parse(value);
  AxisPlacement placement{cut.axis->name, Placement::sharded, cut.dim, cut.axis->size};
  for (const Value& group : cut.groups) placement.groups.push_back(read_group(path + ".groups", group));
  return placement;
}

struct IoOptions {
  std::optional<std::vector<std::string>> inputs;
  std::optional<std::vector<Value>> outputs;
  Value::Table losses;
  std::vector<std::string> metrics;
};

Output read_output(const Value& value) {
  static const auto kSchema = Schema<Output>("nn.layer.io.outputs")
                                  .required("name", &Output::name, "name of the value")
                                  .optional("differentiable", &Output::differentiable, "whether a gradient flows through it");
  if (const auto* name = value.get_if<std::string>()) return {*name, true};
  return kSchema.parse(value);
}

struct LossOptions {
  std::string per;
  bool adds_over_tokens = false;
};

LossInfo read_loss(const std::string& name, const Value& value) {
  const std::string path = "nn.layer.io.losses." + name;
  if (const auto* word = value.get_if<std::string>()) return {name, parse_per(*word)};
  if (!value.get_if<Value::Table>()) wrong_type(path, "\"token\", \"sample\" or {per =, adds_over_tokens =}", value);
  const LossOptions options =
      Schema<LossOptions>(path)
          .required("per", &LossOptions::per, "\"token\" or \"sample\"")
          .optional("adds_over_tokens", &LossOptions::adds_over_tokens, "the loss of a sample is the sum of those of its tokens")
          .parse(value);
  return {name, parse_per(options.per), options.adds_over_tokens};
}

}  // namespace

std::vector<std::string> read_axes(const char* option, const std::vector<std::shared_ptr<Axis>>& axes) {
  std::vector<std::string> names;
  for (const auto& axis : axes) {
    if (axis->names.size() > 1)
      misuse("nn.layer.{}: '{}' joins several axes, and a layer communicates along single ones: list them", option, axis->name);
    if (axis->size > 1) names.push_back(axis->name);
  }
  return names;
}

std::optional<TokenCut> read_token_cut(const Value& value, std::set<std::string>& named, std::vector<std::string>& fields) {
  static const Schema<TokenCutOptions> kSchema = token_cut_options(Schema<TokenCutOptions>("nn.layer.context"));
  const TokenCutOptions options = kSchema.parse(value);
  named.insert(options.axis->name);
  fields = options.fields;
  return token_cut_of(options, "nn.layer.context");
}

std::shared_ptr<Param> read_param(const std::string& name, const Value& value, const std::set<std::string>& axes) {
  const std::string path = "nn.layer.params." + name;
  const auto* object = value.get_if<Object>();
  if (object && object->as<Param>()) return object->as<Param>();
  if (!value.get_if<Value::Table>()) return param_of(name, path, value);
  if (const auto& table = *value.get_if<Value::Table>(); table.contains("values") && !table.contains("cut"))
    misuse("{}: option 'cut' is missing; a parameter that is not cut is the tensor itself: {} = values", path, name);
  const CutParamOptions options =
      Schema<CutParamOptions>(path)
          .required("values", &CutParamOptions::values, "initial values of the whole tensor")
          .required("cut", &CutParamOptions::cut, "how it is cut: {axis =, dim =, groups =}, or a list of such tables")
          .parse(value);
  const auto param = param_of(name, path + ".values", options.values);
  const auto* list = options.cut.get_if<Value::List>();
  for (const Value& cut : list ? *list : Value::List{options.cut}) param->placements.push_back(read_cut(path + ".cut", cut));
  with_context([&] { return path + ".cut"; }, [&] { check_placements(*param); });
  for (const AxisPlacement& on : param->placements) {
    if (!axes.contains(on.axis))
      misuse(
          "{}: it is cut along '{}', which `axes` and `tensor_axes` do not list, and `context` does not name: the ranks must communicate to use it",
          path, on.axis);
  }
  std::erase_if(param->placements, [](const AxisPlacement& on) { return on.parts == 1; });
  return param;
}

Io read_io(const Value::Table& table) {
  static const auto kSchema =
      Schema<IoOptions>("nn.layer.io")
          .optional("inputs", &IoOptions::inputs, "names of the values that the layer reads")
          .optional("outputs", &IoOptions::outputs, "names of the values that the layer makes")
          .optional("losses", &IoOptions::losses, "the loss terms that it adds, by name: \"token\" or \"sample\"")
          .optional("metrics", &IoOptions::metrics, "names of the means that it adds to, by ctx:metric(name, sum, count)");
  const IoOptions options = kSchema.parse(table);
  Io io;
  if (options.inputs) io.inputs = *options.inputs;
  for (const auto& [name, per] : options.losses) io.losses.push_back(read_loss(name, per));
  for (const std::string& name : options.metrics) io.stats.push_back({name, 2});
  if (!options.outputs) return io;
  io.outputs.clear();
  for (const auto& output : *options.outputs) io.outputs.push_back(read_output(output));
  return io;
}

}  // namespace zt::nn
