#include "zt/simulate/costs.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "hardware.h"
#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt {

namespace {

constexpr int kVersion = 1;

std::string part_of_one(double value) {
  return value > 0 && value <= 1 ? "" : fmt::format("must be above 0 and at most 1, got {}", value);
}

// A table of costs, before its nested tables are read.
struct CostsTable {
  int version = kVersion;
  Hardware hardware;
  Value::Table measured;
};

}  // namespace

// These are found by Schema.
Value to_value(const LinkSpeed& link) {
  return Value::Table{{"latency", link.latency}, {"bandwidth", link.bandwidth}};
}

Value to_value(const Efficiency& efficiency) {
  return Value::Table{{"flops", efficiency.flops}, {"memory", efficiency.memory}, {"links", efficiency.links}};
}

Value to_value(const Hardware& hardware) {
  return Value::Table{{"name", hardware.name},
                      {"flops", Value::Table(hardware.flops.begin(), hardware.flops.end())},
                      {"memory_bandwidth", hardware.memory_bandwidth},
                      {"inside", to_value(hardware.inside)},
                      {"across", to_value(hardware.across)},
                      {"ranks_per_machine", hardware.ranks_per_machine},
                      {"cards_per_machine", hardware.cards_per_machine},
                      {"file_read", hardware.file_read},
                      {"file_write", hardware.file_write},
                      {"host_copy", hardware.host_copy},
                      {"host_memory", hardware.host_memory},
                      {"efficiency", to_value(hardware.efficiency)},
                      {"launch", hardware.launch},
                      {"overlaps", hardware.overlaps},
                      {"backend", hardware.backend},
                      {"source", hardware.source}};
}

void convert(const Value& value, const std::string& path, LinkSpeed& out) {
  out = Schema<LinkSpeed>(path)
            .optional("latency", &LinkSpeed::latency, "seconds of one message", at_least(0))
            .optional("bandwidth", &LinkSpeed::bandwidth, "bytes per second, in one direction", at_least(0))
            .parse(value);
}
void convert(const Value& value, const std::string& path, std::map<std::string, double>& out) {
  Value::Table table;
  convert(value, path, table);
  out.clear();
  for (const auto& [type, rate] : table) {
    parse_float_type(type, path);
    convert(rate, path + "." + type, out[type]);
    if (!(out[type] > 0)) misuse("{}.{} must be above 0, got {}", path, type, out[type]);
  }
}
// A number stands for all three.
void convert(const Value& value, const std::string& path, Efficiency& out) {
  if (value.get_if<double>() || value.get_if<int64_t>()) {
    convert(value, path, out.flops);
    if (!(out.flops > 0 && out.flops <= 1)) misuse("{} must be above 0 and at most 1, got {}", path, out.flops);
    out.memory = out.links = out.flops;
    return;
  }
  out = Schema<Efficiency>(path)
            .optional("flops", &Efficiency::flops, "the part of flops that layers reach", part_of_one)
            .optional("memory", &Efficiency::memory, "the part of memory_bandwidth that is reached", part_of_one)
            .optional("links", &Efficiency::links, "the part of the links' bandwidths that is reached", part_of_one)
            .parse(value);
}
void convert(const Value& value, const std::string& path, Hardware& out) {
  out = Schema<Hardware>(path)
            .optional("name", &Hardware::name, "a name for reports")
            .optional("flops", &Hardware::flops, "operations per second, by type: {bf16 = 989e12}")
            .optional("memory_bandwidth", &Hardware::memory_bandwidth, "bytes per second", at_least(0))
            .optional("inside", &Hardware::inside, "{latency, bandwidth} between ranks of a machine")
            .optional("across", &Hardware::across, "{latency, bandwidth} of one network card")
            .optional("ranks_per_machine", &Hardware::ranks_per_machine, "ranks of one machine", at_least(1))
            .optional("cards_per_machine", &Hardware::cards_per_machine, "network cards of a machine; 0: as many as ranks",
                      at_least(0))
            .optional("file_read", &Hardware::file_read, "bytes per second that a machine reads from its disks", at_least(0))
            .optional("file_write", &Hardware::file_write, "bytes per second that a machine writes to its disks", at_least(0))
            .optional("host_copy", &Hardware::host_copy, "bytes per second that a machine copies between host and devices",
                      at_least(0))
            .optional("host_memory", &Hardware::host_memory,
                      "bytes per second that a machine's host reads and writes in its memory", at_least(0))
            .optional("efficiency", &Hardware::efficiency, "{flops, memory, links}: the parts of these rates that are reached")
            .optional("launch", &Hardware::launch, "seconds of each action beside its operations and bytes", at_least(0))
            .optional("overlaps", &Hardware::overlaps, "whether transfers run beside computation")
            .optional("backend", &Hardware::backend, "of axes for which the script names none, in ztoolkit plan")
            .optional("source", &Hardware::source, "where the numbers are from")
            .parse(value);
}

std::string measured_name(const Action& action, const ModelInfo& model) {
  const Kind& of_action = kind(action.kind);
  if (of_action.target == Index::none) return of_action.name;
  const std::string what = action.attr("what");  // of FETCH and EVICT: some move more bytes than others
  return of_action.name + " " + (what.empty() ? "" : what + " ") + owner_name(of_action.target, action.target, model);
}

Value to_value(const Costs& costs) {
  Value::Table measured;
  for (const auto& [name, cost] : costs.measured) {
    measured[name] =
        Value::Table{{"compute", cost.compute}, {"transfer", cost.transfer},         {"sent_bytes", cost.sent_bytes},
                     {"flops", cost.flops},     {"memory_bytes", cost.memory_bytes}, {"moved_bytes", cost.moved_bytes}};
  }
  return Value::Table{{"version", kVersion}, {"hardware", to_value(costs.hardware)}, {"measured", std::move(measured)}};
}

Costs parse_costs(const Value& value) {
  static const auto schema = Schema<CostsTable>("costs")
                                 .optional("version", &CostsTable::version, "of the format: 1", between(kVersion, kVersion))
                                 .optional("hardware", &CostsTable::hardware, "the machine, for what was not measured")
                                 .optional("measured", &CostsTable::measured, "{compute, transfer, sent_bytes} by action");
  static const auto entry =
      Schema<Costs::Measured>("costs.measured")
          .optional("compute", &Costs::Measured::compute, "seconds on the rank", at_least(0))
          .optional("transfer", &Costs::Measured::transfer, "seconds of communication", at_least(0))
          .optional("sent_bytes", &Costs::Measured::sent_bytes, "bytes that were sent", at_least(0))
          .optional("flops", &Costs::Measured::flops, "operations; 0: not known", at_least(0))
          .optional("memory_bytes", &Costs::Measured::memory_bytes, "bytes that were read and written; 0: not known", at_least(0))
          .optional("moved_bytes", &Costs::Measured::moved_bytes, "bytes that were read from files, written to files and copied",
                    at_least(0));
  const CostsTable table = schema.parse(value);
  Costs costs{.hardware = table.hardware, .measured = {}};
  for (const auto& [name, cost] : table.measured) costs.measured[name] = entry.parse(cost);
  return costs;
}

std::string describe(const Hardware& hardware, const std::string& type) {
  const Efficiency& reached = hardware.efficiency;
  std::string text = counted(hardware.ranks_per_machine, "rank") + " per machine";
  if (const auto rate = hardware.flops.find(type); rate != hardware.flops.end())
    text += fmt::format(", {} {:.4g} TFLOP/s x {:.2g}", type, rate->second / 1e12, reached.flops);
  const auto add = [&](const std::string& what, double bandwidth, double part) {
    if (bandwidth > 0) text += fmt::format(", {} {:.4g} GB/s x {:.2g}", what, bandwidth / 1e9, part);
  };
  add("memory", hardware.memory_bandwidth, reached.memory);
  add("links inside", hardware.inside.bandwidth, reached.links);
  add(fmt::format("across by {:.0f} card{} of", hardware.cards(), hardware.cards() == 1 ? "" : "s"), hardware.across.bandwidth,
      reached.links);
  add("reads files at", hardware.file_read, 1);
  add("writes files at", hardware.file_write, 1);
  add("copies between host and devices at", hardware.host_copy, 1);
  add("updates in host memory at", hardware.host_memory, 1);
  const auto add_time = [&](double seconds, const char* of) {
    if (seconds > 0) text += fmt::format(", {:.3g} us {}", seconds * 1e6, of);
  };
  add_time(hardware.inside.latency, "per message inside");
  add_time(hardware.across.latency, "across");
  add_time(hardware.launch, "per action");
  return text;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const Hardware& hardware : known_hardware()) names.push_back(hardware.name);
  return names;
}

Costs find_costs(const std::string& name) {
  for (const Hardware& hardware : known_hardware()) {
    if (hardware.name == name) return {.hardware = hardware, .measured = {}};
  }
  if (!name.ends_with(".json")) {
    misuse("there are no costs for '{}'{}: give a machine, a JSON file, or what trainer:costs(batch) returned", name,
           suggest(name, hardware_names()));
  }
  std::ifstream file(name);
  if (!file) misuse("the file of costs '{}' cannot be read", name);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) misuse("the file of costs '{}' is not JSON: write it with zt.json.encode(trainer:costs(batch))", name);
  return with_context([&] { return name; }, [&] { return parse_costs(Value::from_json(json)); });
}

}  // namespace zt
