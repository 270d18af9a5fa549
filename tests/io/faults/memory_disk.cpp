#include "memory_disk.h"

#include <algorithm>

namespace zt::io {

namespace {

constexpr size_t kPage = 4096;

void apply(std::map<std::string, Node>& names, const MemoryFolder::Change& change) {
  for (const auto& [name, node] : change) {
    if (node.file || node.folder) {
      names[name] = node;
    } else {
      names.erase(name);
    }
  }
}

bool coin(std::mt19937_64& random) {
  return random() % 2 == 0;
}

// Returns a random mix of the synced and the current content: each page and the size come from one of the two.
std::vector<std::byte> mixed(const MemoryFile& file, std::mt19937_64& random) {
  std::vector<std::byte> left = file.synced;
  left.resize(std::max(file.now.size(), file.synced.size()));
  for (size_t begin = 0; begin < file.now.size(); begin += kPage) {
    if (coin(random)) continue;
    const size_t end = std::min(begin + kPage, file.now.size());
    std::copy(file.now.begin() + static_cast<int64_t>(begin), file.now.begin() + static_cast<int64_t>(end),
              left.begin() + static_cast<int64_t>(begin));
  }
  left.resize(coin(random) ? file.now.size() : file.synced.size());
  return left;
}

std::vector<std::byte> left_of(const MemoryFile& file, Left data, std::mt19937_64& random) {
  switch (data) {
    case Left::nothing:
      return file.synced;
    case Left::everything:
      return file.now;
    case Left::some:
      return mixed(file, random);
  }
  return {};
}

size_t changes_left(size_t changes, Left names, std::mt19937_64& random) {
  switch (names) {
    case Left::nothing:
      return 0;
    case Left::everything:
      return changes;
    case Left::some:
      return random() % (changes + 1);
  }
  return 0;
}

}  // namespace

void MemoryFolder::change(const Change& change) {
  apply(now, change);
  unsynced.push_back(change);
}

void MemoryFolder::sync() {
  synced = now;
  unsynced.clear();
}

std::shared_ptr<MemoryFolder> after_crash(const MemoryFolder& folder, const Crash& crash, std::mt19937_64& random) {
  std::map<std::string, Node> names = folder.synced;
  const size_t left = changes_left(folder.unsynced.size(), crash.names, random);
  for (size_t i = 0; i < left; ++i) apply(names, folder.unsynced[i]);

  auto result = std::make_shared<MemoryFolder>();
  for (const auto& [name, node] : names) {
    Node& copy = result->now[name];
    if (node.folder) {
      copy.folder = after_crash(*node.folder, crash, random);
    } else {
      const auto bytes = left_of(*node.file, crash.data, random);
      copy.file = std::make_shared<MemoryFile>(MemoryFile{bytes, bytes});
    }
  }
  result->sync();
  return result;
}

int64_t bytes_in(const MemoryFolder& folder) {
  int64_t bytes = 0;
  for (const auto& [name, node] : folder.now) {
    bytes += node.folder ? bytes_in(*node.folder) : static_cast<int64_t>(node.file->now.size());
  }
  return bytes;
}

}  // namespace zt::io
