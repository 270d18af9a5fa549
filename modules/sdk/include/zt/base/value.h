// A value from a script: options tables, attributes of actions and client state consist of these.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "zt/base/object.h"

namespace at {
class Tensor;  // its header takes 4 s to compile, and few files that use values use tensors
}

namespace zt {

class Value {
 public:
  using List = std::vector<Value>;
  using Table = std::map<std::string, Value>;
  using SharedTensor = std::shared_ptr<const at::Tensor>;
  using Data = std::variant<std::monostate, bool, int64_t, double, std::string, List, Table, SharedTensor, Object>;

  Value() = default;
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, Value> && std::is_constructible_v<Data, T>) Value(T&& data)
      : data_(std::forward<T>(data)) {}  // NOLINT: implicit, from any type that a Value can hold
  Value(const char* text) : data_(std::string(text)) {}
  Value(int number) : data_(static_cast<int64_t>(number)) {}
  Value(const at::Tensor& tensor);  // a handle to the same elements

  bool is_nil() const { return std::holds_alternative<std::monostate>(data_); }
  template <class T>
  const T* get_if() const {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      const auto* tensor = std::get_if<SharedTensor>(&data_);
      return tensor ? tensor->get() : nullptr;
    } else {
      return std::get_if<T>(&data_);
    }
  }
  const Data& data() const { return data_; }

  // Returns the name of the type for messages: "a table", "an integer", "a tensor", "a Layer".
  std::string type_name() const;
  // Throws Misuse if the value is or contains a tensor or an object: JSON cannot hold these.
  nlohmann::json to_json() const;
  static Value from_json(const nlohmann::json& json);

 private:
  Data data_;
};

}  // namespace zt
