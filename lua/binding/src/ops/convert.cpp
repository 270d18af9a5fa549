#include "ops/convert.h"

#include <ATen/Context.h>
#include <ATen/ScalarOps.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "arguments.h"
#include "binding_state.h"
#include "cdata.h"
#include "ops/random.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/lua/state.h"

namespace zt::lua {

namespace {

std::optional<at::Layout> layout_of(std::string_view text) {
  if (text == "strided") return at::kStrided;
  if (text == "sparse_coo") return at::kSparse;
  if (text == "sparse_csr") return at::kSparseCsr;
  return std::nullopt;
}

std::optional<at::MemoryFormat> memory_format_of(std::string_view text) {
  if (text == "contiguous") return at::MemoryFormat::Contiguous;
  if (text == "preserve") return at::MemoryFormat::Preserve;
  if (text == "channels_last") return at::MemoryFormat::ChannelsLast;
  if (text == "channels_last_3d") return at::MemoryFormat::ChannelsLast3d;
  return std::nullopt;
}

at::Scalar scalar_of(const GivenArgument& given, lua_State* L) {
  if (given.form == ArgumentForm::boolean) return lua_toboolean(L, given.index) != 0;
  if (given.form == ArgumentForm::integer) return given.integer;
  return given.number;
}

// Returns a 0-dim tensor that takes part in type promotion as a number: 2 * a float16 tensor stays float16.
at::Tensor wrapped_number(const at::Scalar& scalar) {
  at::Tensor tensor = at::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// Returns the list at `index`. `read(i)` converts the element at stack index i.
template <class T>
c10::IValue list_of(lua_State* L, int index, auto&& read) {
  c10::List<T> list;
  const int count = static_cast<int>(lua_objlen(L, index));
  list.reserve(static_cast<size_t>(count));
  for (int i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    list.push_back(read(lua_gettop(L)));
    lua_pop(L, 1);
  }
  return list;
}

c10::IValue integers_of(const ArgumentSource& source, lua_State* L) {
  const GivenArgument* given = source.given;
  if (given->form == ArgumentForm::list) {
    return list_of<int64_t>(L, given->index, [&](int at) { return *integer_at(L, at); });
  }
  c10::List<int64_t> list;
  for (size_t i = 0; i < std::max<size_t>(1, source.loose_sizes); ++i) list.push_back(given[i].integer);
  return list;
}

c10::IValue word_value(ArgumentKind kind, const char* text) {
  switch (kind) {
    case ArgumentKind::dtype:
      return parse_dtype(text);
    case ArgumentKind::layout:
      return *layout_of(text);
    case ArgumentKind::memory_format:
      return *memory_format_of(text);
    default:
      return c10::Device(text);
  }
}

c10::IValue convert_list(ArgumentKind kind, int index, lua_State* L) {
  switch (kind) {
    case ArgumentKind::tensors:
      return list_of<at::Tensor>(L, index, [&](int at) { return check_tensor(L, at); });
    case ArgumentKind::optional_tensors:
      return list_of<std::optional<at::Tensor>>(
          L, index, [&](int at) { return is_tensor(L, at) ? std::optional(check_tensor(L, at)) : std::nullopt; });
    case ArgumentKind::floatings:
      return list_of<double>(L, index, [&](int at) { return check_number(L, at); });
    case ArgumentKind::scalars:
      return list_of<at::Scalar>(L, index, [&](int at) {
        const auto integer = integer_at(L, at);
        return integer ? at::Scalar(*integer) : at::Scalar(lua_tonumber(L, at));
      });
    default:
      return list_of<bool>(L, index, [&](int at) { return lua_toboolean(L, at) != 0; });
  }
}

c10::IValue convert_given(const Parameter& parameter, const ArgumentSource& source, lua_State* L) {
  const GivenArgument& given = *source.given;
  if (given.form == ArgumentForm::nil) return {};
  switch (parameter.kind) {
    case ArgumentKind::tensor:
      return given.box ? given.box->tensor : wrapped_number(scalar_of(given, L));
    case ArgumentKind::integer:
      return given.integer;
    case ArgumentKind::floating:
      return given.number;
    case ArgumentKind::scalar:
      return scalar_of(given, L);
    case ArgumentKind::boolean:
      return lua_toboolean(L, given.index) != 0;
    case ArgumentKind::text:
      return check_string(L, given.index);
    case ArgumentKind::integers:
      return integers_of(source, L);
    case ArgumentKind::dtype:
    case ArgumentKind::layout:
    case ArgumentKind::memory_format:
    case ArgumentKind::device:
      if (parameter.kind == ArgumentKind::device) return usable_device(lua_tostring(L, given.index));
      return word_value(parameter.kind, lua_tostring(L, given.index));
    case ArgumentKind::generator:
      return check<Generator>(L, given.index)->generator;
    default:
      return convert_list(parameter.kind, given.index, L);
  }
}

// Returns the dtype for a factory that is called without one: bool if the fill value is a boolean, else the state's default
// dtype. PyTorch would take the dtype of the number, but Lua cannot tell 2.0 from 2.
c10::IValue default_dtype(const Match& match, lua_State* L) {
  for (size_t i = 0; i < match.sources.size(); ++i) {
    const GivenArgument* given = match.sources[i].given;
    if (match.overload->parameters[i].kind == ArgumentKind::scalar && given && given->form == ArgumentForm::boolean)
      return at::kBool;
  }
  return binding_state(L).default_dtype;
}

c10::IValue convert_absent(const Match& match, const Parameter& parameter, lua_State* L) {
  if (parameter.kind == ArgumentKind::generator) return own_generator(L);
  const bool is_open_dtype = parameter.kind == ArgumentKind::dtype && parameter.default_value->isNone();
  if (is_open_dtype && match.overload->is_factory) return default_dtype(match, L);
  return *parameter.default_value;
}

// Returns the bytes that a result newly allocated: 0 if it shares its storage with an argument.
int64_t new_bytes(const at::Tensor& tensor, const OperatorCall& call) {
  if (!tensor.has_storage()) return 0;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  for (const auto& given : call.positional) {
    if (given.box && given.box->tensor.has_storage() && given.box->tensor.storage().unsafeGetStorageImpl() == storage) return 0;
  }
  return storage_bytes(tensor);
}

void push_result_tensor(const at::Tensor& tensor, const OperatorCall& call) {
  lua_State* L = call.L;
  if (!tensor.defined()) return lua_pushnil(L);
  const auto is_same = [&](const GivenArgument& given) { return given.box && given.box->tensor.is_same(tensor); };
  for (const auto& given : call.positional) {
    if (is_same(given)) return lua_pushvalue(L, given.index);
  }
  for (const auto& named : call.named) {
    if (is_same(named.given)) return lua_pushvalue(L, named.given.index);
  }
  push_tensor(L, tensor, new_bytes(tensor, call));
}

}  // namespace

bool is_word(ArgumentKind kind, const char* text) {
  if (kind == ArgumentKind::layout) return layout_of(text).has_value();
  if (kind == ArgumentKind::memory_format) return memory_format_of(text).has_value();
  try {
    word_value(kind, text);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

c10::Device usable_device(const std::string& text) {
  const c10::Device device(text);
  if (!device.is_cuda()) return device;
  const int count = at::globalContext().hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
  if (device.index() < count && count > 0) return device;
  misuse("there is no device '{}' here: LibTorch finds {} GPUs (ztoolkit info tells more). Use {}the device 'cpu'", text, count,
         count > 0 ? "another number, or " : "");
}

std::vector<c10::IValue> convert_arguments(const Match& match, const OperatorCall& call) {
  std::vector<c10::IValue> stack;
  stack.reserve(match.sources.size());
  for (size_t i = 0; i < match.sources.size(); ++i) {
    const Parameter& parameter = match.overload->parameters[i];
    const ArgumentSource& source = match.sources[i];
    stack.push_back(source.given ? convert_given(parameter, source, call.L) : convert_absent(match, parameter, call.L));
  }
  return stack;
}

void push_result(const c10::IValue& result, const OperatorCall& call) {
  lua_State* L = call.L;
  if (result.isTensor()) return push_result_tensor(result.toTensor(), call);
  if (result.isInt()) return push(L, result.toInt());
  if (result.isDouble()) return push(L, result.toDouble());
  if (result.isBool()) return push(L, result.toBool());
  if (result.isString()) return push(L, result.toStringRef());
  if (result.isDevice()) return push(L, result.toDevice().str());
  if (result.isNone()) return lua_pushnil(L);
  if (result.isList()) {
    const auto list = result.toListRef();
    lua_createtable(L, static_cast<int>(list.size()), 0);
    for (size_t i = 0; i < list.size(); ++i) {
      push_result(list[i], call);
      lua_rawseti(L, -2, static_cast<int>(i + 1));
    }
    return;
  }
  misuse("the operator returned a {}, which has no counterpart in Lua", result.tagKind());
}

}  // namespace zt::lua
