#include "move_options.h"

#include "move.h"
#include "zt/base/error.h"
#include "zt/model/home.h"

namespace zt::offload {

namespace {

std::string multiple_of_blocks(const int64_t& elements) {
  if (elements > 0 && elements % kSliceAlign == 0) return {};
  return fmt::format("must be a positive multiple of {} elements, got {}", kSliceAlign, elements);
}

}  // namespace

Value with_folders(const std::string& caller, const Value& options) {
  const auto* given = options.get_if<Value::Table>();
  if (!given) return options;
  Value::Table table = *given;
  const auto folder = table.find("folder");
  const auto is_list = [](const Value& value) {
    const auto* fields = value.get_if<Value::Table>();
    return value.get_if<Value::List>() || (fields && fields->empty());  // an empty table is no list
  };
  if (folder == table.end() || is_list(folder->second)) return table;
  if (!folder->second.get_if<std::string>())
    misuse("{}: folder must be a path or a list of paths, got {}", caller, folder->second.type_name());
  folder->second = Value::List{folder->second};
  return table;
}

MoveOptions parse_move_options(const Value& options) {
  static const auto schema = with_disk_options(
      Schema<MoveOptions>("offload.move")
          .optional("optimizer", &MoveOptions::optimizer, "where optimizer state and master parameters lie: device, host or nvme")
          .optional("gradients", &MoveOptions::gradients, "where sums of gradients lie: device, host or nvme")
          .optional("parameters", &MoveOptions::parameters, "where the shards of parameters lie: device, host or nvme")
          .optional("activations", &MoveOptions::activations,
                    "where values and graphs lie until their backward: device, host or nvme")
          .optional("activations_stay", &MoveOptions::activations_stay, "the last positions whose activations stay in memory",
                    at_least(0))
          .optional("activation_bytes", &MoveOptions::activation_bytes, "the smallest tensor of activations that leaves",
                    at_least(1))
          .optional("step_on", &MoveOptions::step_on,
                    "device or host: the memory in which updates work with what travels; default: host")
          .optional("ratio", &MoveOptions::ratio, "share of the data that travels", Check<double>(between(0, 1)))
          .optional("memory", &MoveOptions::memory, "bytes of the data that may stay in memory", Check<int64_t>(at_least(0)))
          .optional("staging", &MoveOptions::staging, "bytes in memory for slices under way; default: four slices",
                    Check<int64_t>(at_least(1)))
          .optional("slice", &MoveOptions::slice,
                    "most elements that move together; default: 2^20, or zero.shard's sub_group_size",
                    Check<int64_t>(multiple_of_blocks)));
  MoveOptions parsed = schema.parse(with_folders("offload.move", options));
  if (parsed.ratio && parsed.memory) misuse("offload.move: ratio and memory both say how much stays in memory: give one of them");
  const auto* given = options.get_if<Value::Table>();
  if (parsed.step_on && parsed.optimizer == Where::device)
    misuse("offload.move: step_on has an effect only with optimizer = \"host\" or \"nvme\": give that, or leave it out");
  for (const char* name : {"activations_stay", "activation_bytes"}) {
    if (given && given->contains(name) && parsed.activations == Where::device)
      misuse("offload.move: {} has an effect only with activations = \"nvme\" or \"host\": give that, or leave it out", name);
  }
  if (parsed.has(Where::nvme) && parsed.folder.empty())
    misuse("offload.move: \"nvme\" needs a folder: give folder = {{\"/path\"}} on the disk that is to hold the data");
  return parsed;
}

}  // namespace zt::offload
