#include "buckets.h"

#include <algorithm>

namespace zt::zero {

namespace {

constexpr int64_t kElementBytes = 4;

struct Bucket {
  std::vector<ReadyUnit> units;
  int64_t bytes = 0;
};

struct BucketBuilder {
  const std::vector<Action>& actions;
  const ModelInfo& model;
  const Bucketing& bucketing;

  std::vector<Bucket> group(const std::vector<ReadyUnit>& ready) const {
    std::vector<Bucket> buckets;
    for (const ReadyUnit& unit : ready) {
      if (buckets.empty() || !joins(buckets.back(), unit)) buckets.emplace_back();
      buckets.back().units.push_back(unit);
      buckets.back().bytes += bytes_of(unit);
    }
    return buckets;
  }

  int64_t bytes_of(const ReadyUnit& ready) const { return model.units[ready.unit].numel * kElementBytes; }

  bool joins(const Bucket& bucket, const ReadyUnit& ready) const {
    const ReadyUnit& last = bucket.units.back();
    const UnitPlan &plan = bucketing.plans[ready.unit], &other = bucketing.plans[last.unit];
    if (plan.shard_axes != other.shard_axes || plan.sum_axes != other.sum_axes) return false;
    if (ready.round != last.round || ready.part != last.part || bucket.bytes + bytes_of(ready) > bucketing.bytes) return false;
    for (int index = last.after + 1; index <= ready.after; ++index) {
      if (touches(actions[index], bucket)) return false;
    }
    return true;
  }

  bool touches(const Action& action, const Bucket& bucket) const {
    const Resources resources = resources_of(action, model);
    const auto is_in_bucket = [&](const Resource& resource) {
      const auto& touched = bucketing.touched;
      return std::ranges::find(touched, resource.type) != touched.end() &&
             std::ranges::find(bucket.units, resource.index, &ReadyUnit::unit) != bucket.units.end();
    };
    return std::ranges::any_of(resources.reads, is_in_bucket) || std::ranges::any_of(resources.writes, is_in_bucket) ||
           std::ranges::any_of(resources.frees, is_in_bucket);
  }
};

Action bucket_action(const Bucket& bucket, const Bucketing& bucketing) {
  Action action{.kind = bucketing.kind, .target = bucket.units.front().unit};
  action.set_axes(bucketing.plans[bucket.units.front().unit].comm_axes());
  if (bucketing.waits) action.attrs["wait"] = true;
  action.set_gradient_part(bucket.units.front().part);
  Value::List others;
  for (size_t i = 1; i < bucket.units.size(); ++i) others.push_back(bucket.units[i].unit);
  if (!others.empty()) action.attrs["units"] = std::move(others);
  return action;
}

}  // namespace

std::vector<Action> insert_buckets(std::vector<Action> actions, const ModelInfo& model, const std::vector<ReadyUnit>& ready,
                                   const Bucketing& bucketing) {
  const std::vector<Bucket> buckets = BucketBuilder{actions, model, bucketing}.group(ready);
  std::vector<Action> result;
  result.reserve(actions.size() + buckets.size());
  auto next = buckets.begin();
  for (int index = 0; index < static_cast<int>(actions.size()); ++index) {
    result.push_back(std::move(actions[index]));
    for (; next != buckets.end() && next->units.back().after == index; ++next) result.push_back(bucket_action(*next, bucketing));
  }
  return result;
}

}  // namespace zt::zero
