#include "reader.h"

#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

constexpr int64_t kLeastLink = 8;  // bytes: the least that a link takes in a file

// Returns call(). Adds `where` to the message of its Fault.
template <class Call>
auto at_place(const std::string& where, Call call) {
  try {
    return call();
  } catch (const Fault& error) {
    fault("{}: {}", where, error.what());
  }
}

void check_storage(hid_t dataset) {
  const Handle list(H5Dget_create_plist(dataset), H5Pclose, "read how it is stored");
  const auto layout = H5Pget_layout(list);
  if (layout != H5D_COMPACT && layout != H5D_CONTIGUOUS) fault("its data are not in one piece");
  if (H5Pget_nfilters(list) != 0) fault("its data are compressed");
  if (layout == H5D_CONTIGUOUS && H5Pget_external_count(list) != 0) fault("its data are in another file");
}

struct LinkNames {
  std::vector<std::string> names;
  size_t most;
  bool is_foreign = false;
};

// libhdf5 calls this; no exception may pass through it.
herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* data) noexcept {
  auto& links = *static_cast<LinkNames*>(data);
  links.is_foreign = info->type != H5L_TYPE_HARD;
  if (links.is_foreign || links.names.size() >= links.most) return 1;
  links.names.emplace_back(name);
  return 0;
}

}  // namespace

void TreeReader::take(int64_t bytes) {
  if (bytes > left_) fault("it claims {} bytes, more than the file has for it", bytes);
  left_ -= bytes;
}

Handle TreeReader::open(const std::string& path) const {
  return {H5Oopen(file_, path.c_str(), H5P_DEFAULT), H5Oclose, "open '" + path + "'"};
}

std::vector<std::string> TreeReader::links(hid_t group, const std::string& where) {
  return at_place(where, [&] {
    LinkNames links{{}, static_cast<size_t>(left_ / kLeastLink)};
    const herr_t result = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect_link, &links);
    checked(result, "list its links");
    if (links.is_foreign) fault("it has a soft or external link, and only hard links are read");
    if (result > 0) fault("it has more links than the file has room for");
    take(static_cast<int64_t>(links.names.size()) * kLeastLink);
    return std::move(links.names);
  });
}

template <class Use>
auto TreeReader::with_dataset(hid_t dataset, const std::string& where, Use use) {
  return at_place(where, [&] {
    if (H5Iget_type(dataset) != H5I_DATASET) fault("it is no dataset");
    check_storage(dataset);
    const Handle type(H5Dget_type(dataset), H5Tclose, "read its type");
    const Handle space(H5Dget_space(dataset), H5Sclose, "read its shape");
    const hsize_t stored = H5Dget_storage_size(dataset);
    const auto leave = [&](int64_t bytes) {
      take(bytes);
      if (static_cast<hsize_t>(bytes) != stored) fault("it needs {} bytes and has {}", bytes, stored);
    };
    const auto read = [&](hid_t as, void* to) {
      checked(H5Dread(dataset, as, H5S_ALL, H5S_ALL, H5P_DEFAULT, to), "read its data");
    };
    return use(StoredData{type, space, leave, read});
  });
}

Value TreeReader::dataset_value(hid_t dataset, const std::string& where) {
  return with_dataset(dataset, where, decode_value);
}

Value TreeReader::attribute_value(hid_t attribute, const std::string& where) {
  return at_place(where, [&] {
    const Handle type(H5Aget_type(attribute), H5Tclose, "read its type");
    const Handle space(H5Aget_space(attribute), H5Sclose, "read its shape");
    const auto read = [&](hid_t as, void* to) { checked(H5Aread(attribute, as, to), "read its data"); };
    return decode_value({type, space, [&](int64_t bytes) { take(bytes); }, read});
  });
}

std::vector<std::byte> TreeReader::list_bytes(const std::string& path, hid_t type) {
  return with_dataset(open(path), path, [&](const StoredData& stored) {
    if (H5Tequal(stored.type, type) <= 0) fault("its type is not the one that the format has here");
    if (H5Sget_simple_extent_ndims(stored.space) != 1) fault("it is no list");
    return read_bytes(stored);
  });
}

std::vector<std::string> TreeReader::strings(const std::string& path) {
  return with_dataset(open(path), path, [&](const StoredData& stored) {
    if (!is_string_type(stored.type)) fault("it has no strings");
    if (H5Sget_simple_extent_ndims(stored.space) != 1) fault("it is no list");
    return split_strings(read_bytes(stored), H5Tget_size(stored.type));
  });
}

}  // namespace zt::ckpt
