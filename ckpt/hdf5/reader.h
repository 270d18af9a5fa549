// Reading an HDF5 file in memory that may be anything.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "handle.h"
#include "stored.h"
#include "zt/base/value.h"

namespace zt::ckpt {

constexpr const char* kListLength = "list";  // attribute of a group that is a list

// Opens objects of a file and reads them. What it reads together is bounded by the file's size, and it refuses links out of the
// file and data that are compressed, computed or elsewhere. Hdf5Session is held. Errors: Fault that says where in the file.
class Reader {
 public:
  Reader(hid_t file, int64_t bytes) : file_(file), left_(bytes) {}

  hid_t file() const { return file_; }
  Handle open(const std::string& path) const;
  // The names of a group's links, in order.
  std::vector<std::string> links(hid_t group, const std::string& where);

  Value dataset_value(hid_t dataset, const std::string& where);
  Value attribute_value(hid_t attribute, const std::string& where);
  // The dataset at `path`, a list whose type in the file is exactly `type`, as T.
  template <class T>
  std::vector<T> column(const std::string& path, hid_t type) {
    const std::vector<std::byte> bytes = list_bytes(path, type);
    std::vector<T> items(bytes.size() / sizeof(T));
    if (!items.empty()) std::memcpy(items.data(), bytes.data(), items.size() * sizeof(T));
    return items;
  }
  std::vector<std::string> strings(const std::string& path);

 private:
  // Takes leave to hold so many bytes of the file. Of a sound file no byte is read twice.
  void take(int64_t bytes);
  std::vector<std::byte> list_bytes(const std::string& path, hid_t type);
  template <class Use>
  auto with_dataset(hid_t dataset, const std::string& where, Use use);

  hid_t file_;
  int64_t left_;
};

}  // namespace zt::ckpt
