#include "encoded_value.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "names.h"
#include "tree.h"
#include "types.h"
#include "zt/base/error.h"

namespace zt::ckpt {

namespace {

constexpr at::ScalarType kNil = at::kLong;  // type of null datasets and of empty lists

Handle null_space() {
  return {H5Screate(H5S_NULL), H5Sclose, "make a shape"};
}

Handle string_type(size_t size, bool is_text) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "copy a type");
  checked(H5Tset_size(type, std::max<size_t>(size, 1)), "set a type's size");
  checked(H5Tset_strpad(type, H5T_STR_NULLPAD), "set a type's padding");
  checked(H5Tset_cset(type, is_text ? H5T_CSET_UTF8 : H5T_CSET_ASCII), "set a type's encoding");
  return type;
}

template <class T>
std::vector<std::byte> as_byte_span(const T* items, size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  if (count > 0) std::memcpy(bytes.data(), items, bytes.size());
  return bytes;
}

template <class T>
constexpr at::ScalarType kTypeOf = at::kLong;
template <>
constexpr at::ScalarType kTypeOf<double> = at::kDouble;
template <>
constexpr at::ScalarType kTypeOf<bool> = at::kBool;

template <class T>
EncodedValue encode_scalar(const T& number) {
  return {hdf5_type(kTypeOf<T>), shape_of({}), as_byte_span(&number, 1)};
}

EncodedValue encode_scalar(const std::string& text) {
  return {string_type(text.size(), is_utf8(text)), text.empty() ? null_space() : shape_of({}),
          as_byte_span(text.data(), text.size())};
}

template <class T>
EncodedValue encode_list(const Value::List& list) {
  const auto items = std::make_unique<T[]>(list.size());
  std::transform(list.begin(), list.end(), items.get(), [](const Value& item) { return *item.get_if<T>(); });
  return {hdf5_type(kTypeOf<T>), shape_of({static_cast<int64_t>(list.size())}), as_byte_span(items.get(), list.size())};
}

std::optional<EncodedValue> encode_string_list(const Value::List& list) {
  std::vector<std::string> strings;
  size_t longest = 1, bytes = 0;
  for (const Value& item : list) {
    strings.push_back(*item.get_if<std::string>());
    if (strings.back().ends_with('\0')) return std::nullopt;
    longest = std::max(longest, strings.back().size());
    bytes += strings.back().size();
  }
  if (longest * strings.size() > 4 * bytes + 4096) return std::nullopt;
  return encode_strings(strings);
}

std::optional<EncodedValue> encode_list_of_one_kind(const Value::List& list) {
  if (list.empty()) return EncodedValue{hdf5_type(kNil), shape_of({0}), {}};
  const size_t kind = list.front().data().index();
  if (std::any_of(list.begin(), list.end(), [&](const Value& item) { return item.data().index() != kind; })) return std::nullopt;
  if (list.front().get_if<bool>()) return encode_list<bool>(list);
  if (list.front().get_if<int64_t>()) return encode_list<int64_t>(list);
  if (list.front().get_if<double>()) return encode_list<double>(list);
  if (list.front().get_if<std::string>()) return encode_string_list(list);
  return std::nullopt;
}

}  // namespace

EncodedValue encode_strings(const std::vector<std::string>& strings) {
  size_t longest = 1;
  bool is_text = true;
  for (const std::string& text : strings) {
    longest = std::max(longest, text.size());
    is_text = is_text && is_utf8(text);
  }
  std::vector<std::byte> bytes(longest * strings.size());
  for (size_t i = 0; i < strings.size(); ++i) std::memcpy(bytes.data() + i * longest, strings[i].data(), strings[i].size());
  return {string_type(longest, is_text), shape_of({static_cast<int64_t>(strings.size())}), std::move(bytes)};
}

std::optional<EncodedValue> encode_value(const Value& value) {
  if (value.is_nil()) return EncodedValue{hdf5_type(kNil), null_space(), {}};
  if (const auto* v = value.get_if<bool>()) return encode_scalar(*v);
  if (const auto* v = value.get_if<int64_t>()) return encode_scalar(*v);
  if (const auto* v = value.get_if<double>()) return encode_scalar(*v);
  if (const auto* v = value.get_if<std::string>()) return encode_scalar(*v);
  if (const auto* v = value.get_if<Value::List>()) return encode_list_of_one_kind(*v);
  if (value.get_if<Value::Table>()) return std::nullopt;
  misuse("{} cannot be saved as a value: values are booleans, numbers, strings, tensors, and lists and tables of them",
         value.type_name());
}

}  // namespace zt::ckpt
