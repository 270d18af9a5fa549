// Files and folders in memory, and what a crash of the machine may leave of them.
//
// Data that were not synced may be lost, there, or there in part. Changes of a folder's names since its last sync may be lost or
// there, or only the first of them may be there: known file systems keep the order of such changes and never split a rename.
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

// How much is left of data and names that were not synced. Everything is, if only the process dies.
struct Crash {
  Left data = Left::nothing;
  Left names = Left::nothing;
  uint64_t seed = 1;  // chooses the part that is left, for Left::some
};

struct MemoryFile {
  std::vector<std::byte> now, synced;
  bool is_locked = false;  // open with Access::replace
};

struct MemoryFolder;

// An entry: exactly one pointer is set. Neither is set if the name was removed.
struct Node {
  std::shared_ptr<MemoryFile> file;
  std::shared_ptr<MemoryFolder> folder;
};

struct MemoryFolder {
  using Change = std::vector<std::pair<std::string, Node>>;  // in one step; a rename consists of two entries

  std::map<std::string, Node> now, synced;
  std::vector<Change> unsynced;

  void change(const Change& change);
  void sync();
};

// Returns the folder that the machine finds after a crash. It shares nothing with `folder`.
std::shared_ptr<MemoryFolder> after_crash(const MemoryFolder& folder, const Crash& crash, std::mt19937_64& random);

// Of all files.
int64_t bytes_in(const MemoryFolder& folder);

}  // namespace zt::io
