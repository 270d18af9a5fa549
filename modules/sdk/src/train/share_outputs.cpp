#include "share_outputs.h"

#include <ATen/ops/empty.h>

#include <exception>

#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt {

namespace {

// {name, dtype, sizes} of each output.
Value description_of(const Outputs& outputs) {
  Value::List list;
  for (const auto& [name, tensor] : outputs) {
    Value::List entry{name, static_cast<int64_t>(tensor.scalar_type())};
    entry.emplace_back(Value::List(tensor.sizes().begin(), tensor.sizes().end()));
    list.emplace_back(std::move(entry));
  }
  return list;
}

std::pair<std::string, at::Tensor> empty_output(const Value& description, at::Device device) {
  const auto& fields = *description.get_if<Value::List>();
  std::vector<int64_t> sizes;
  convert(fields[2], "sizes", sizes);
  const auto dtype = static_cast<at::ScalarType>(*fields[1].get_if<int64_t>());
  return {*fields[0].get_if<std::string>(), at::empty(sizes, at::TensorOptions().dtype(dtype).device(device))};
}

}  // namespace

Outputs share_outputs(Outputs mine, Communicator& comm, Communicator& control, at::Device device) {
  const std::vector<Value> all = control.all_gather_values(description_of(mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto& described = *all[rank].get_if<Value::List>();
    if (described.empty()) continue;
    const bool is_source = static_cast<int>(rank) == comm.rank();
    Outputs shared;
    for (const Value& output : described) {
      auto [name, tensor] = empty_output(output, device);
      if (is_source) tensor = mine.at(name).contiguous();
      comm.broadcast(tensor, static_cast<int>(rank)).synchronize();
      shared.emplace(std::move(name), std::move(tensor));
    }
    return shared;
  }
  return mine;
}

Value share_reduced(const Outputs& mine, const std::function<Value(const Outputs&)>& reduce, Communicator& control) {
  Value result;
  std::exception_ptr failure;
  if (!mine.empty()) {
    try {
      result = Value::Table{{"value", reduce(mine)}};
    } catch (const std::exception& error) {
      failure = std::current_exception();
      result = Value::Table{{"error", std::string(error.what())}};
    }
  }
  const std::vector<Value> all = control.all_gather_values(result);
  if (failure) std::rethrow_exception(failure);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto* table = all[rank].get_if<Value::Table>();
    if (!table) continue;
    if (const auto error = table->find("error"); error != table->end())
      misuse("rank {} of '{}' failed: {}", rank, control.name(), *error->second.get_if<std::string>());
    const auto value = table->find("value");
    return value == table->end() ? Value() : value->second;
  }
  return {};
}

}  // namespace zt
