// Makes groups and datasets in an image.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "handle.h"

namespace zt::ckpt {

// Returns a creation list for datasets. No times are stored, so that equal content gives equal bytes. Space for data is allocated
// at once and never filled.
Handle dataset_list(H5D_layout_t layout);
Handle shape_of(const std::vector<int64_t>& shape);

// Writes the tree of a new file. Requires an Hdf5Session.
class TreeWriter {
 public:
  explicit TreeWriter(hid_t file);

  // Returns the group at the path ("/model/a", "/" for the root). Makes missing groups.
  hid_t group(const std::string& path);
  // Makes a dataset, and the groups of its path that are missing.
  Handle dataset(const std::string& path, hid_t type, hid_t space, hid_t creation_list);
  Handle attribute(hid_t object, const std::string& name, hid_t type, hid_t space) const;

 private:
  Handle links_, groups_list_, attributes_;
  std::map<std::string, Handle> groups_;
};

}  // namespace zt::ckpt
