// Making groups and datasets of an image.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "handle.h"

namespace zt::ckpt {

// How an object is stored: without times, so that equal content is equal bytes; data allocated at once, never filled.
Handle dataset_list(H5D_layout_t layout);
Handle shape_of(const std::vector<int64_t>& shape);

// Writes the tree of a new file. Hdf5Session is held.
class TreeWriter {
 public:
  explicit TreeWriter(hid_t file);

  // The group at the path ("/model/a", "/" for the root), made with those above it where missing.
  hid_t group(const std::string& path);
  // A dataset at a path, whose groups are made where missing.
  Handle dataset(const std::string& path, hid_t type, hid_t space, hid_t creation_list);
  Handle attribute(hid_t object, const std::string& name, hid_t type, hid_t space) const;

 private:
  Handle links_, groups_list_, attributes_;
  std::map<std::string, Handle> groups_;
};

}  // namespace zt::ckpt
