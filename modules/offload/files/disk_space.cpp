#include "files/disk_space.h"

#include <sys/vfs.h>

#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/base/tensor.h"
#include "zt/io/io_errors.h"

namespace zt::offload {

std::map<std::string, Space> gather_spaces(const DiskOptions& options, const HomeNeeds& needs) {
  const int64_t share = needs.files / std::ssize(options.folder) + options.block;
  Value::Table mine;
  for (const std::string& folder : options.folder) mine[folder] = Value::List{share, options.files->free_bytes(folder)};
  const Value entry = Value::Table{{"machine", machine_name()}, {"folders", mine}};
  const std::vector<Value> all =
      needs.world ? needs.world->all_gather_values(entry, "reserves space for data that move") : std::vector<Value>{entry};
  std::map<std::string, Space> spaces;
  for (const Value& each : all) {
    const auto& table = *each.get_if<Value::Table>();
    if (*table.at("machine").get_if<std::string>() != machine_name()) continue;
    for (const auto& [folder, numbers] : *table.at("folders").get_if<Value::Table>()) {
      const auto& list = *numbers.get_if<Value::List>();
      Space& space = spaces[folder];
      space.needed += *list[0].get_if<int64_t>();
      space.free = *list[1].get_if<int64_t>();
      ++space.ranks;
    }
  }
  return spaces;
}

void check_spaces(const DiskOptions& options, const std::map<std::string, Space>& spaces) {
  for (const auto& [folder, space] : spaces) {
    if (space.free < 0 || space.needed <= space.free) continue;
    misuse(
        "{}: the {} of this machine need{} {} in '{}' (with a block of {} for each rank), and its disk has {} left: free space, {}",
        options.caller, space.ranks == 1 ? "rank" : fmt::format("{} ranks", space.ranks), space.ranks == 1 ? "s" : "",
        human_bytes(space.needed), folder, human_bytes(options.block), space.free == 0 ? "none" : human_bytes(space.free),
        options.advice);
  }
}

void check_folders(const DiskOptions& options) {
  for (const std::string& folder : options.folder) {
    const io::EntryKind kind = options.files->kind_of(folder);
    if (kind == io::EntryKind::missing)
      misuse("{}: the folder '{}' does not exist: make it on the disk that is to hold the data", options.caller, folder);
    if (kind != io::EntryKind::folder)
      misuse("{}: '{}' is {}: give a folder on the disk that is to hold the data", options.caller, folder, io::phrase_for(kind));
  }
}

bool is_in_memory(const std::string& folder) {
  constexpr auto kTmpfs = 0x01021994, kRamfs = static_cast<int>(0x858458f6);
  struct statfs status {};
  if (statfs(folder.c_str(), &status) != 0) return false;
  return static_cast<int>(status.f_type) == kTmpfs || static_cast<int>(status.f_type) == kRamfs;
}

}  // namespace zt::offload
