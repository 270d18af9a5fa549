#include "check.h"
#include "hdf5/names.h"
#include "values.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

Value::Table read_table(TreeReader& reader, hid_t group, const std::string& path, int depth) {
  Value::Table table;
  for (const std::string& link : reader.links(group, path)) {
    const auto key = decode_key(link);
    if (!key) fault("{}: '{}' is no name of a value", path, link);
    table.emplace(*key, read_value(reader, path + "/" + link, depth + 1));
  }
  return table;
}

Value::List read_list(TreeReader& reader, hid_t group, const std::string& path, int depth) {
  const Handle attribute(H5Aopen(group, kListLength, H5P_DEFAULT), H5Aclose, "open the length of list '" + path + "'");
  const Value length = reader.attribute_value(attribute, path + ", its length");
  const std::vector<std::string> links = reader.links(group, path);
  const auto* count = length.get_if<int64_t>();
  if (!count || *count != static_cast<int64_t>(links.size()))
    fault("{}: a list of {} items has another length", path, links.size());
  Value::List list;
  for (size_t i = 0; i < links.size(); ++i) list.push_back(read_value(reader, fmt::format("{}/{}", path, i), depth + 1));
  return list;
}

}  // namespace

Value read_value(TreeReader& reader, const std::string& path, int depth) {
  if (depth > kDeepestValue) fault("{}: more than {} groups inside each other", path, kDeepestValue);
  const Handle object = reader.open(path);
  if (H5Iget_type(object) != H5I_GROUP) return reader.dataset_value(object, path);
  const bool is_list = checked(H5Aexists(object, kListLength), "look at '" + path + "'") > 0;
  if (is_list) return read_list(reader, object, path, depth);
  return read_table(reader, object, path, depth);
}

Value::Table read_attributes(TreeReader& reader, const std::string& path, int64_t count) {
  if (count == 0) return {};
  H5O_info_t info;
  checked(H5Oget_info_by_name2(reader.file(), path.c_str(), &info, H5O_INFO_NUM_ATTRS, H5P_DEFAULT), "look at '" + path + "'");
  if (static_cast<int64_t>(info.num_attrs) != count) fault("{}: it has {} attributes instead of {}", path, info.num_attrs, count);
  Value::Table attributes;
  for (hsize_t i = 0; i < info.num_attrs; ++i) {
    const std::string where = fmt::format("{}, attribute {}", path, i);
    const Handle attribute(H5Aopen_by_idx(reader.file(), path.c_str(), H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose, "open " + where);
    std::string name(kLongestName + 1, '\0');
    const auto size = checked(H5Aget_name(attribute, name.size(), name.data()), "read the name of " + where);
    name.resize(std::min(static_cast<size_t>(size), kLongestName));
    const auto key = decode_key(name);
    if (!key) fault("{}: '{}' is no name of a value", where, name);
    attributes.emplace(*key, reader.attribute_value(attribute, where));
  }
  return attributes;
}

}  // namespace zt::ckpt
