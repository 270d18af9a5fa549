#include "pipe/support/pipelines.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "split/split.h"

namespace zt::test {

Config through(const Pipeline& pipeline, Config whole) {
  whole.stage_ranks = pipeline.ranks;
  whole.ranks *= pipeline.ranks;
  whole.split = [pipeline](std::shared_ptr<Axis> axis) {
    return pipe::make_split(
        {.axis = std::move(axis), .name = pipeline.name, .schedule = pipeline.schedule, .partition = {pipeline.partition}});
  };
  return whole;
}

const Outcome& whole_run(Config whole) {
  using Key = std::tuple<int, int, int64_t, int, int, std::string, bool, at::ScalarType, double, std::string>;
  static std::map<Key, Outcome> known;
  const Key key{whole.ranks,        whole.micro_batches, whole.samples,          whole.steps,   whole.seed,
                whole.reduce_every, whole.tied,          whole.precision.params, whole.dropout, whole.frozen};
  const auto [found, is_new] = known.try_emplace(key);
  if (is_new || whole.model) {
    whole.stage = 0;
    whole.recompute_every = 0;
    found->second = train(whole);
  }
  return found->second;
}

void expect_exact(const Pipeline& pipeline, const Config& whole) {
  expect_equal(train(through(pipeline, whole)), whole_run(whole));
}

}  // namespace zt::test
