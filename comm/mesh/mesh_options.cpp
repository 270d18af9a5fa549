// The options of comm.mesh{...}.
#include <algorithm>
#include <cmath>

#include "mesh/mesh.h"
#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt::comm {

namespace {

// The keys that are not axes.
struct FixedOptions {
  std::vector<std::string> order;
  Value backend;
  double timeout = std::chrono::duration<double>(kDefaultTimeout).count();
  std::string check = "first";
  std::optional<std::string> sum_order;
  int64_t ranks_per_node = 0;
};

const Schema<FixedOptions>& schema() {
  static const auto schema =
      Schema<FixedOptions>("comm.mesh")
          .optional("order", &FixedOptions::order, "axis names, slowest to fastest over the ranks")
          .optional("backend", &FixedOptions::backend, "how ranks communicate: a name, or a table of names by axis")
          .optional("timeout", &FixedOptions::timeout, "seconds an operation may take", above(0))
          .optional("check", &FixedOptions::check, "which calls are compared over the ranks before data moves",
                    one_of({"first", "full"}))
          .optional("sum_order", &FixedOptions::sum_order,
                    "fixed: sums have the same bits on every backend; any: the backend's own order (the default on nccl alone)",
                    one_of({"fixed", "any"}))
          .optional("ranks_per_node", &FixedOptions::ranks_per_node, "count this many consecutive ranks as one machine",
                    at_least(1));
  return schema;
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const auto& option : schema().options()) names.push_back(option.key);
  return names;
}

FixedOptions parse_fixed(const Value::Table& table) {
  Value::Table fixed;
  for (const auto& name : option_names()) {
    if (const auto found = table.find(name); found != table.end()) fixed.insert(*found);
  }
  return schema().parse(fixed);
}

// Every key that is not an option is an axis. So a mistyped option looks like an axis, unless its value is not a number.
AxisSize parse_axis(const std::string& name, const Value& value) {
  AxisSize axis{name, 0};
  if (!value.get_if<int64_t>() && !value.get_if<double>()) {
    misuse("comm.mesh: '{}' is {}, but an axis needs an integer, its number of ranks; or, if it should be an option{}", name,
           value.type_name(), suggest(name, option_names()));
  }
  convert(value, "comm.mesh." + name, axis.size);
  return axis;
}

std::string parse_backend(const Value& value, const std::string& path) {
  std::string name;
  convert(value, path, name);
  const std::string complaint = one_of(backend_names())(name);
  if (!complaint.empty()) misuse("{} {}", path, complaint);
  return name;
}

void parse_backends(const Value& value, const std::vector<std::string>& axes, MeshOptions& options) {
  const auto* table = value.get_if<Value::Table>();
  if (!table) {
    if (!value.is_nil()) options.backend = parse_backend(value, "comm.mesh.backend");
    return;
  }
  for (const auto& [axis, name] : *table) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end())
      misuse("comm.mesh.backend: the mesh has no axis '{}'{}", axis, suggest(axis, axes));
    options.backends[axis] = parse_backend(name, "comm.mesh.backend." + axis);
  }
}

// Without `order`, axes with the usual names come in the usual order: those that communicate most vary fastest, so that their
// ranks are on one machine.
void sort_axes(MeshOptions& options, const std::vector<std::string>& names, std::vector<std::string> order) {
  static const std::vector<std::string> usual{"pp", "dp", "ep", "cp", "tp"};
  const auto is_usual = [](const std::string& name) { return std::ranges::find(usual, name) != usual.end(); };
  if (order.empty() && std::ranges::all_of(names, is_usual)) {
    std::ranges::copy_if(usual, std::back_inserter(order),
                         [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); });
  }
  if (names.size() > 1 && order.empty()) {
    misuse(
        "comm.mesh: a Lua table has no order, and only {} have a usual one, so say which varies slowest to fastest: order = "
        "{{'{}'}}",
        fmt::join(usual, ", "), fmt::join(names, "', '"));
  }
  if (!order.empty() && !std::is_permutation(names.begin(), names.end(), order.begin(), order.end())) {
    misuse("comm.mesh: order = {{'{}'}} has to hold each axis once: '{}'", fmt::join(order, "', '"), fmt::join(names, "', '"));
  }
  const auto place = [&](const AxisSize& axis) { return std::find(order.begin(), order.end(), axis.name); };
  std::sort(options.axes.begin(), options.axes.end(), [&](const AxisSize& a, const AxisSize& b) { return place(a) < place(b); });
}

}  // namespace

MeshOptions parse_mesh_options(const Value& value) {
  const auto* table = value.get_if<Value::Table>();
  if (!table) misuse("comm.mesh: a table of axes expected, as in comm.mesh{{dp = -1}}, got {}", value.type_name());
  const FixedOptions fixed = parse_fixed(*table);
  const auto reserved = option_names();
  MeshOptions options;
  std::vector<std::string> names;
  for (const auto& [key, size] : *table) {
    if (std::find(reserved.begin(), reserved.end(), key) != reserved.end()) continue;
    options.axes.push_back(parse_axis(key, size));
    names.push_back(key);
  }
  if (names.empty()) misuse("comm.mesh: no axis is given: comm.mesh{{dp = -1}} takes all ranks");
  sort_axes(options, names, fixed.order);
  parse_backends(fixed.backend, names, options);
  options.settings = {.timeout = std::chrono::milliseconds(std::llround(std::ceil(fixed.timeout * 1000))),
                      .check = fixed.check == "full" ? CheckMode::full : CheckMode::first,
                      .sum_order = {},
                      .ranks_per_node = static_cast<int>(fixed.ranks_per_node)};
  if (fixed.sum_order) options.settings.sum_order = *fixed.sum_order == "any" ? SumOrder::any : SumOrder::fixed;
  return options;
}

}  // namespace zt::comm
