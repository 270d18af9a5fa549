// Files and folders in memory, with what a crash of the machine may leave of them.
//
// Data that was not synced may be lost, or be there, or in part. Of a folder's names what was changed since its last sync may be
// lost, or be there, or up to some change: the file systems we know keep changes of names in their order and a rename whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace zt::ckpt {

enum class Left : uint8_t { nothing, some, everything };

// What is left of what was not synced. When a process dies and the machine does not, everything is.
struct Crash {
  Left data = Left::nothing;
  Left names = Left::nothing;
  uint64_t seed = 1;  // of what is left where it is some
};

struct MemoryFile {
  std::vector<std::byte> now, synced;
};

struct MemoryFolder;

// Exactly one is set; neither: a name that was removed.
struct Node {
  std::shared_ptr<MemoryFile> file;
  std::shared_ptr<MemoryFolder> folder;
};

struct MemoryFolder {
  using Change = std::vector<std::pair<std::string, Node>>;  // at once: a rename is two

  std::map<std::string, Node> now, synced;
  std::vector<Change> unsynced;

  void change(const Change& change);
  void sync();
};

// What the machine finds after a crash; it shares nothing with `folder`.
std::shared_ptr<MemoryFolder> after_crash(const MemoryFolder& folder, const Crash& crash, std::mt19937_64& random);

// Of all files.
int64_t bytes_in(const MemoryFolder& folder);

}  // namespace zt::ckpt
