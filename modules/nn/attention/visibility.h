// Which keys a query sees by their places in the sequence. Tiles, masks, dropout and the operations of plans follow it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace zt::nn {

struct TileRange {
  int64_t begin, end;
};

struct Visibility {
  bool causal = true;  // a query sees no later keys

  // Return the first key of `places` that the query at a place sees, and the end of those that it sees. Neither is smaller for a
  // later query.
  int64_t first_key(int64_t /*query*/) const { return 0; }
  int64_t end_key(int64_t query, int64_t places) const { return causal ? query + 1 : places; }
  TileRange keys_of(TileRange queries, int64_t places) const {
    return {first_key(queries.begin), end_key(queries.end - 1, places)};
  }
  // Returns the part of all pairs of a query and a key whose products are needed, for many places.
  double share() const { return causal ? 0.5 : 1; }
  // Returns bools [places, places] on a device: element (i, j) is true if query i sees key j.
  at::Tensor mask(int64_t places, at::Device device) const {
    const at::Tensor all = at::ones({places, places}, at::TensorOptions(at::kBool).device(device));
    return causal ? all.tril() : all;
  }
};

}  // namespace zt::nn
