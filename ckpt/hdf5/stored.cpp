#include "stored.h"

#include <cstring>
#include <limits>

#include "types.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

enum class Form { null, scalar, list };

Form form_of(hid_t space) {
  const auto extent = H5Sget_simple_extent_type(space);
  if (extent == H5S_NULL) return Form::null;
  if (extent == H5S_SCALAR) return Form::scalar;
  if (extent == H5S_SIMPLE && H5Sget_simple_extent_ndims(space) == 1) return Form::list;
  fault("it is neither one value nor a list");
}

// Returns `bytes`, which are elements of type T, as one value or a list. `make` turns a T into a Value's data.
template <class T, class Make>
Value gather(Form form, const std::vector<std::byte>& bytes, Make make) {
  Value::List list;
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T item;
    std::memcpy(&item, bytes.data() + i, sizeof(T));
    list.emplace_back(make(item));
  }
  return form == Form::scalar ? list.at(0) : Value(std::move(list));
}

bool to_bool(int8_t byte) {
  if (byte != 0 && byte != 1) fault("one of its booleans is {} instead of 0 or 1", byte);
  return byte == 1;
}

Value strings(Form form, const Stored& stored) {
  if (form == Form::null) return std::string();
  const std::vector<std::byte> bytes = read_bytes(stored);
  if (form == Form::scalar) return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
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

std::vector<std::byte> read_bytes(const Stored& stored) {
  if (form_of(stored.space) == Form::null) return {};
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

Value from_plain(const Stored& stored) {
  const Form form = form_of(stored.space);
  if (is_string_type(stored.type)) return strings(form, stored);
  const auto dtype = dtype_of(stored.type);
  if (form == Form::null && dtype == at::kLong) return {};
  if (form == Form::null || !dtype) fault("its type is not one in which values are stored");
  if (dtype == at::kBool) return gather<int8_t>(form, read_bytes(stored), to_bool);
  if (dtype == at::kLong) return gather<int64_t>(form, read_bytes(stored), [](int64_t v) { return v; });
  if (dtype == at::kDouble) return gather<double>(form, read_bytes(stored), [](double v) { return v; });
  fault("its type is not one in which values are stored");
}

}  // namespace zt::ckpt
