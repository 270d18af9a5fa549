// Reads an HDF5 file in memory that may be damaged or hostile.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "handle.h"
#include "stored.h"
#include "zt/base/value.h"

namespace zt::ckpt {

constexpr const char* kListLength = "list";  // attribute of a group that stores a list: the list's length

// Opens objects of a file and reads them. All reads together take at most as many bytes as the file has. Throws a Fault that says
// where in the file; also for links out of the file, and for data that are chunked, compressed, virtual or in another file.
// Requires an Hdf5Session.
class TreeReader {
 public:
  TreeReader(hid_t file, int64_t bytes) : file_(file), left_(bytes) {}

  hid_t file() const { return file_; }
  Handle open(const std::string& path) const;
  // Returns the names of a group's links, sorted.
  std::vector<std::string> links(hid_t group, const std::string& where);

  Value dataset_value(hid_t dataset, const std::string& where);
  Value attribute_value(hid_t attribute, const std::string& where);
  // Reads the dataset at `path` as a list of T. Throws a Fault unless its type in the file is exactly `type`.
  template <class T>
  std::vector<T> column(const std::string& path, hid_t type) {
    const std::vector<std::byte> bytes = list_bytes(path, type);
    std::vector<T> items(bytes.size() / sizeof(T));
    if (!items.empty()) std::memcpy(items.data(), bytes.data(), items.size() * sizeof(T));
    return items;
  }
  std::vector<std::string> strings(const std::string& path);

 private:
  // Counts `bytes` against the file's size and throws a Fault if the sum exceeds it. No byte of a sound file is read twice.
  void take(int64_t bytes);
  std::vector<std::byte> list_bytes(const std::string& path, hid_t type);
  template <class Use>
  auto with_dataset(hid_t dataset, const std::string& where, Use use);

  hid_t file_;
  int64_t left_;
};

}  // namespace zt::ckpt
