// Files and folders in memory, with their possible states after a crash of the machine.
//
// Data that were not synced may be lost, kept, or kept in part. Of the changes of a folder's names since its last sync, all, none
// or only the first few may be kept: known file systems keep the order of such changes and never split a rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace zt::io {

enum class Left : uint8_t { nothing, some, everything };

// How much of unsynced data and names a crash leaves. Use Left::everything for both if only the process dies.
struct Crash {
  Left data = Left::nothing;
  Left names = Left::nothing;
  uint64_t seed = 1;  // chooses the part that is left; used by Left::some
};

struct MemoryFile {
  std::vector<std::byte> now, synced;
  bool is_locked = false;  // true while open with Access::replace
};

struct MemoryFolder;

// An entry of a folder: one of the two pointers is set. If neither is set, the name was removed.
struct Node {
  std::shared_ptr<MemoryFile> file;
  std::shared_ptr<MemoryFolder> folder;
};

struct MemoryFolder {
  using Change = std::vector<std::pair<std::string, Node>>;  // an atomic change; a rename has two entries

  std::map<std::string, Node> now, synced;
  std::vector<Change> unsynced;

  void change(const Change& change);
  void sync();
};

// Returns the folder that the machine finds after a crash. It shares nothing with `folder`.
std::shared_ptr<MemoryFolder> after_crash(const MemoryFolder& folder, const Crash& crash, std::mt19937_64& random);

// Returns the bytes of all files in the folder and its subfolders.
int64_t bytes_in(const MemoryFolder& folder);

}  // namespace zt::io
