// Makes groups and datasets in an image.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "handle.h"

namespace zt::ckpt {

// Returns a creation list for datasets. No times are stored, so that equal content gives equal bytes. Space for data is allocated
// at once and never filled.
Handle dataset_list(H5D_layout_t layout);
Handle shape_of(const std::vector<int64_t>& shape);

// Groups with at most this many links have them in their object header ("compact"). libhdf5 moves the links of larger ones to a
// fractal heap, because the time for n compact links grows with n^2: here to about 4 s.
constexpr unsigned kMostCompactLinks = 16384;

// How many links a group will have, and the bytes of their names together.
struct GroupLinks {
  int64_t count = 0;
  int64_t name_bytes = 0;
};

// The links of each group of a tree, from the paths of its datasets ("/model/a"). Each path is added once.
class LinkCounts {
 public:
  void add(const std::string& path);
  GroupLinks of(const std::string& group) const;

 private:
  std::map<std::string, GroupLinks> links_;
};

// Makes the groups of a creation list compact, with room in their header for these links, or not compact if there are too many.
// Without that room libhdf5 would append a part to the header for every few links, and take a time that grows with n^3.
void set_links(hid_t creation_list, const GroupLinks& links);
// Makes objects have all their attributes in their header.
void set_attributes_compact(hid_t creation_list);

// Writes the tree of a new file. Requires an Hdf5Session.
class TreeWriter {
 public:
  // `counts`: the links that groups will have; those without an entry get no room beforehand.
  explicit TreeWriter(hid_t file, LinkCounts counts = {});

  // Returns the group at the path ("/model/a", "/" for the root). Makes missing groups.
  hid_t group(const std::string& path);
  // The same for a group that is made here, and will have these links.
  hid_t group(const std::string& path, const GroupLinks& links);
  // Makes a dataset, and the groups of its path that are missing.
  Handle dataset(const std::string& path, hid_t type, hid_t space, hid_t creation_list);
  Handle attribute(hid_t object, const std::string& name, hid_t type, hid_t space) const;

 private:
  LinkCounts counts_;
  Handle links_, attributes_;
  std::map<std::string, Handle> groups_;
};

}  // namespace zt::ckpt
