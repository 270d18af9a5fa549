// Helpers that make parameters.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "zt/model/param.h"

namespace zt::nn {

// dims: the meaning of each dim, for example "hidden"; may be empty.
inline std::shared_ptr<Param> make_param(std::string name, std::vector<int64_t> shape, InitFn init, bool is_matrix,
                                         std::vector<std::string> dims) {
  auto param = std::make_shared<Param>();
  param->name = std::move(name);
  param->shape = std::move(shape);
  param->init = std::move(init);
  param->is_matrix = is_matrix;
  param->dims = std::move(dims);
  return param;
}

// Makes a parameter without weight decay by default: a bias, or a norm's scale.
inline std::shared_ptr<Param> make_vector(std::string name, int64_t size, InitFn init, const char* dim) {
  return make_param(std::move(name), {size}, std::move(init), false, {dim});
}

// Returns the parameters of all lists, in order.
inline Params joined(std::initializer_list<Params> lists) {
  Params all;
  for (const Params& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace zt::nn
