#include "check.h"
#include "hdf5/encoded_value.h"
#include "hdf5/names.h"
#include "hdf5/types.h"
#include "values.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

constexpr size_t kMostCompact = 4096;  // bytes: data up to this size lie in the dataset's header

std::string link_name(const std::string& path, const std::string& key) {
  std::string link = encode_key(key);
  if (link.size() > kLongestName) misuse("a key below '{}' has {} bytes, {} are allowed", path, key.size(), kLongestName);
  return link;
}

void write_encoded(TreeWriter& tree, const std::string& path, const EncodedValue& encoded) {
  const bool is_small = encoded.bytes.size() <= kMostCompact;
  const Handle dataset = tree.dataset(path, encoded.type, encoded.space, dataset_list(is_small ? H5D_COMPACT : H5D_CONTIGUOUS));
  if (!encoded.bytes.empty())
    checked(H5Dwrite(dataset, encoded.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, encoded.bytes.data()), "write '" + path + "'");
}

// Returns the links of the group of a table or list.
GroupLinks links_of(const Value& value) {
  GroupLinks links;
  if (const auto* list = value.get_if<Value::List>()) {
    const auto count = static_cast<int64_t>(list->size());
    return {count, count * static_cast<int64_t>(std::to_string(count).size())};
  }
  for (const auto& [key, item] : *value.get_if<Value::Table>()) {
    ++links.count;
    links.name_bytes += static_cast<int64_t>(encode_key(key).size());
  }
  return links;
}

}  // namespace

void write_value(TreeWriter& tree, const std::string& path, const Value& value, int depth) {
  if (depth > kDeepestValue) misuse("the value '{}' has more than {} tables and lists inside each other", path, kDeepestValue);
  if (const auto encoded = encode_value(value)) return write_encoded(tree, path, *encoded);
  const hid_t group = tree.group(path, links_of(value));
  if (const auto* table = value.get_if<Value::Table>()) {
    for (const auto& [key, item] : *table) write_value(tree, path + "/" + link_name(path, key), item, depth + 1);
    return;
  }
  const auto& list = *value.get_if<Value::List>();
  const auto count = static_cast<int64_t>(list.size());
  const Handle type = hdf5_type(at::kLong);
  const Handle length = tree.attribute(group, kListLength, type, shape_of({}));
  checked(H5Awrite(length, type, &count), "write the length of list '" + path + "'");
  for (size_t i = 0; i < list.size(); ++i) write_value(tree, fmt::format("{}/{}", path, i), list[i], depth + 1);
}

void write_attributes(const TreeWriter& tree, hid_t object, const Value::Table& attributes) {
  for (const auto& [key, value] : attributes) {
    const auto encoded = encode_value(value);
    if (!encoded)
      misuse("the attribute '{}' is {} of several kinds: attributes hold one value or a list of one kind", key,
             value.type_name());
    const Handle attribute = tree.attribute(object, link_name("the attributes", key), encoded->type, encoded->space);
    if (!encoded->bytes.empty())
      checked(H5Awrite(attribute, encoded->type, encoded->bytes.data()), "write attribute '" + key + "'");
  }
}

}  // namespace zt::ckpt
