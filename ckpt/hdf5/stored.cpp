#include "stored.h"

#include <cstring>
#include <limits>

#include "types.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

enum class ExtentKind { null, scalar, list };

ExtentKind extent_kind(hid_t space) {
  const auto type = H5Sget_simple_extent_type(space);
  if (type == H5S_NULL) return ExtentKind::null;
  if (type == H5S_SCALAR) return ExtentKind::scalar;
  if (type == H5S_SIMPLE && H5Sget_simple_extent_ndims(space) == 1) return ExtentKind::list;
  fault("it is neither one value nor a list");
}

// Returns `bytes`, which are elements of type T, as one value or a list. `make` turns a T into a Value's data.
template <class T, class Make>
Value gather(ExtentKind extent, const std::vector<std::byte>& bytes, Make make) {
  Value::List list;
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T item;
    std::memcpy(&item, bytes.data() + i, sizeof(T));
    list.emplace_back(make(item));
  }
  return extent == ExtentKind::scalar ? list.at(0) : Value(std::move(list));
}

bool to_bool(int8_t byte) {
  if (byte != 0 && byte != 1) fault("one of its booleans is {} instead of 0 or 1", byte);
  return byte == 1;
}

Value strings(ExtentKind extent, const StoredData& stored) {
  if (extent == ExtentKind::null) return std::string();
  const std::vector<std::byte> bytes = read_bytes(stored);
  if (extent == ExtentKind::scalar) return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Value::List list;
  for (std::string& text : split_strings(bytes, H5Tget_size(stored.type))) list.emplace_back(std::move(text));
  return list;
}

}  // namespace

bool is_string_type(hid_t type) {
  return H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && H5Tget_strpad(type) == H5T_STR_NULLPAD &&
         H5Tget_size(type) > 0;
}

std::vector<std::string> split_strings(const std::vector<std::byte>& bytes, size_t size) {
  std::vector<std::string> strings;
  for (size_t i = 0; i + size <= bytes.size(); i += size) {
    std::string text(reinterpret_cast<const char*>(bytes.data()) + i, size);
    text.resize(text.find_last_not_of('\0') + 1);
    strings.push_back(std::move(text));
  }
  return strings;
}

std::vector<std::byte> read_bytes(const StoredData& stored) {
  if (extent_kind(stored.space) == ExtentKind::null) return {};
  const auto count = checked(H5Sget_simple_extent_npoints(stored.space), "read a shape");
  const size_t size = H5Tget_size(stored.type);
  if (size == 0 || count > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(size))
    fault("it claims {} elements of {} bytes", count, size);
  const int64_t total = count * static_cast<int64_t>(size);
  stored.take(total);
  std::vector<std::byte> bytes(static_cast<size_t>(total));
  if (total > 0) stored.read(stored.type, bytes.data());
  return bytes;
}

Value decode_value(const StoredData& stored) {
  const ExtentKind extent = extent_kind(stored.space);
  if (is_string_type(stored.type)) return strings(extent, stored);
  const auto dtype = dtype_of(stored.type);
  if (extent == ExtentKind::null && dtype == at::kLong) return {};
  if (extent == ExtentKind::null || !dtype) fault("its type is not one in which values are stored");
  if (dtype == at::kBool) return gather<int8_t>(extent, read_bytes(stored), to_bool);
  if (dtype == at::kLong) return gather<int64_t>(extent, read_bytes(stored), [](int64_t v) { return v; });
  if (dtype == at::kDouble) return gather<double>(extent, read_bytes(stored), [](double v) { return v; });
  fault("its type is not one in which values are stored");
}

}  // namespace zt::ckpt
