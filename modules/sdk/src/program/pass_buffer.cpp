#include "zt/program/pass_buffer.h"

#include <algorithm>
#include <numeric>

#include "zt/base/error.h"
#include "zt/model/model.h"

namespace zt {

int64_t elements_of(const PassBuffer& buffer, int64_t chunk) {
  if (buffer.residence == BufferResidence::sharded) return chunk;
  return std::accumulate(buffer.shape.begin(), buffer.shape.end(), int64_t{1}, std::multiplies());
}

std::string owner_name(Index of, int index, const ModelInfo& model) {
  if (of == Index::none) return {};
  if (of == Index::unit) return model.units.at(index).name;
  if (of == Index::position) return model.positions.at(index).name;
  return std::ranges::find(model.positions, index, &PositionInfo::layer)->name;
}

std::string owner_text(Index of, int index, const ModelInfo& model) {
  return of == Index::none ? "the run" : fmt::format("{} '{}'", word_of(of), owner_name(of, index, model));
}

}  // namespace zt
