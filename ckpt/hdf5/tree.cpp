#include "tree.h"

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

TreeWriter::TreeWriter(hid_t file)
    : links_(utf8_list(H5P_LINK_CREATE)),
      groups_list_(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "make a list of properties"),
      attributes_(utf8_list(H5P_ATTRIBUTE_CREATE)) {
  checked(H5Pset_obj_track_times(groups_list_, false), "leave out times");
  groups_.emplace("/", Handle(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose, "open the root group"));
}

hid_t TreeWriter::group(const std::string& path) {
  const auto found = groups_.find(path);
  if (found != groups_.end()) return found->second;
  const size_t slash = path.rfind('/');
  const hid_t above = group(slash == 0 ? "/" : path.substr(0, slash));
  Handle made(H5Gcreate2(above, path.c_str() + slash + 1, links_, groups_list_, H5P_DEFAULT), H5Gclose,
              "make group '" + path + "'");
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
