// The owners of whole tensors share the work of Muon.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/build/unit_build.h"
#include "model/tensor_owners.h"
#include "tensor/muon.h"

namespace zt::optim::test {
namespace {

// Each block is a unit of matrices as those of a transformer.
ModelInfo blocks_of(int count, int64_t hidden) {
  ModelInfo model;
  for (int block = 0; block < count; ++block) {
    UnitInfo unit;
    unit.name = fmt::format("blocks.{}", block);
    for (const auto& [rows, columns] : {std::pair{3 * hidden, hidden}, std::pair{hidden, hidden}, std::pair{4 * hidden, hidden},
                                        std::pair{hidden, 4 * hidden}}) {
      ParamInfo param;
      param.name = fmt::format("blocks.{}.{}x{}", block, rows, columns);
      param.shape = {rows, columns};
      param.is_matrix = true;
      param.offset = unit.numel;
      unit.params.push_back(static_cast<int>(model.params.size()));
      unit.numel += rows * columns;
      model.params.push_back(param);
    }
    model.units.push_back(unit);
  }
  return model;
}

// Returns the work of each rank's tensors.
std::vector<double> loads_of(const ModelInfo& model, const Optimizer& muon, int ranks) {
  const UnitPlan plan{.shard_axes = {"dp"}, .sum_axes = {"dp"}, .state = Residence::sharded};
  const Coord coord{MeshShape({{"dp", ranks}}, ranks), 0};
  std::vector<Unit> units;
  for (size_t u = 0; u < model.units.size(); ++u) units.push_back(describe_unit(model, static_cast<int>(u), plan, coord));
  assign_owners(model, muon, coord, units);
  std::vector<double> loads(static_cast<size_t>(ranks), 0);
  for (const Unit& unit : units) {
    for (size_t place = 0; place < unit.owners.size(); ++place)
      loads.at(static_cast<size_t>(unit.owners[place])) += muon.work_of(model.params[model.units[unit.index].params[place]]);
  }
  return loads;
}

TEST(Owners, HaveAboutEqualWork) {
  const auto muon = make_muon(Value::Table{{"lr", 1e-3}}, Isa::plain);
  for (const int ranks : {2, 3, 4, 5, 7, 8, 16, 64}) {
    for (const int count : {ranks, ranks + 1, 2 * ranks - 1, 3 * ranks}) {  // 4 matrices in each block
      const std::vector<double> loads = loads_of(blocks_of(count, 64), *muon, ranks);
      const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / ranks;
      EXPECT_LE(*std::ranges::max_element(loads), 1.2 * mean) << ranks << " ranks, " << count << " blocks";
    }
  }
}

}  // namespace
}  // namespace zt::optim::test
