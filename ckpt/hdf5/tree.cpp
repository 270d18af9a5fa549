#include "tree.h"

#include <algorithm>

namespace zt::ckpt {

namespace {

Handle utf8_list(hid_t kind) {
  Handle list(H5Pcreate(kind), H5Pclose, "make a list of properties");
  checked(H5Pset_char_encoding(list, H5T_CSET_UTF8), "set an encoding");
  return list;
}

}  // namespace

Handle dataset_list(H5D_layout_t layout) {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "make a list of properties");
  checked(H5Pset_layout(list, layout), "set a layout");
  checked(H5Pset_obj_track_times(list, false), "leave out times");
  set_attributes_compact(list);
  if (layout == H5D_VIRTUAL) return list;
  checked(H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY), "set when space is allocated");
  checked(H5Pset_fill_time(list, H5D_FILL_TIME_NEVER), "set when space is filled");
  return list;
}

Handle shape_of(const std::vector<int64_t>& shape) {
  const std::vector<hsize_t> sizes(shape.begin(), shape.end());
  if (sizes.empty()) return {H5Screate(H5S_SCALAR), H5Sclose, "make a shape"};
  return {H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose, "make a shape"};
}

void LinkCounts::add(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string group = slash == 0 ? "/" : path.substr(0, slash);
  const auto [found, is_new] = links_.try_emplace(group);
  ++found->second.count;
  found->second.name_bytes += static_cast<int64_t>(path.size() - slash - 1);
  if (is_new && slash > 0) add(group);
}

GroupLinks LinkCounts::of(const std::string& group) const {
  const auto found = links_.find(group);
  return found == links_.end() ? GroupLinks() : found->second;
}

void set_links(hid_t creation_list, const GroupLinks& links) {
  constexpr int64_t kMost = 65535;  // of either number in libhdf5
  constexpr int64_t kEncoding = 2;  // bytes that a name's encoding takes, with reserve: libhdf5's estimate leaves it out
  const unsigned most_compact = links.count > kMostCompactLinks ? 0 : kMostCompactLinks;
  checked(H5Pset_link_phase_change(creation_list, most_compact, most_compact), "set how links are stored");
  if (links.count == 0 || most_compact == 0) return;
  const int64_t name = (links.name_bytes + links.count - 1) / links.count + kEncoding;
  checked(H5Pset_est_link_info(creation_list, static_cast<unsigned>(std::min(links.count, kMost)),
                               static_cast<unsigned>(std::min(name, kMost))),
          "set how many links a group will have");
}

void set_attributes_compact(hid_t creation_list) {
  checked(H5Pset_attr_phase_change(creation_list, 65535, 65535), "set how attributes are stored");
}

TreeWriter::TreeWriter(hid_t file, LinkCounts counts)
    : counts_(std::move(counts)), links_(utf8_list(H5P_LINK_CREATE)), attributes_(utf8_list(H5P_ATTRIBUTE_CREATE)) {
  groups_.emplace("/", Handle(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose, "open the root group"));
}

hid_t TreeWriter::group(const std::string& path) {
  return group(path, counts_.of(path));
}

hid_t TreeWriter::group(const std::string& path, const GroupLinks& links) {
  const auto found = groups_.find(path);
  if (found != groups_.end()) return found->second;
  const size_t slash = path.rfind('/');
  const hid_t above = group(slash == 0 ? "/" : path.substr(0, slash));
  const Handle list(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "make a list of properties");
  checked(H5Pset_obj_track_times(list, false), "leave out times");
  set_attributes_compact(list);
  set_links(list, links);
  Handle made(H5Gcreate2(above, path.c_str() + slash + 1, links_, list, H5P_DEFAULT), H5Gclose, "make group '" + path + "'");
  return groups_.emplace(path, std::move(made)).first->second;
}

Handle TreeWriter::dataset(const std::string& path, hid_t type, hid_t space, hid_t creation_list) {
  const size_t slash = path.rfind('/');
  const hid_t above = group(slash == 0 ? "/" : path.substr(0, slash));
  return {H5Dcreate2(above, path.c_str() + slash + 1, type, space, links_, creation_list, H5P_DEFAULT), H5Dclose,
          "make dataset '" + path + "'"};
}

Handle TreeWriter::attribute(hid_t object, const std::string& name, hid_t type, hid_t space) const {
  return {H5Acreate2(object, name.c_str(), type, space, attributes_, H5P_DEFAULT), H5Aclose, "make attribute '" + name + "'"};
}

}  // namespace zt::ckpt
