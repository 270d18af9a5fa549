// Helpers that make parameters.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "zt/model/param.h"

namespace zt::nn {

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
