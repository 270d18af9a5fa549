// Optimizers update flat shards; schedules give the learning rate of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/model/model.h"

namespace zt {

// A run of elements of one parameter within a shard.
struct Segment {
  int param = 0;      // index into ModelInfo::params
  int group = 0;      // what Optimizer::group_of said
  int64_t begin = 0;  // in elements of the shard
  int64_t end = 0;
};

struct FlatState {
  at::Tensor master;                        // [n] parameters, updated in place
  std::map<std::string, at::Tensor> state;  // each [n], same dtype
  // [n] bfloat16 or float16, for a float32 master: written with the updated master, rounded to nearest even. Undefined: none.
  at::Tensor copy = {};
};

// What changes from step to step.
struct Scalars {
  double lr = 0;          // of the schedule; a group's lr_scale multiplies it
  double grad_scale = 1;  // multiplies the gradient first, in the master's dtype: 1 / N, clipping, loss scale
  int64_t step = 1;       // 1-based count of updates, for bias corrections
};

enum class Scope : uint8_t {
  element,  // updates each element by itself: any cut of the flat buffer will do
  tensor,   // needs whole tensors
};

class Optimizer {
 public:
  virtual ~Optimizer();
  virtual std::string kind() const = 0;                      // "adamw"
  virtual double lr() const = 0;                             // the base learning rate
  virtual std::vector<std::string> state_names() const = 0;  // "exp_avg", "exp_avg_sq": zero at the start
  virtual Scope scope() const { return Scope::element; }
  // The group a parameter belongs to, by its name: -1 when it is not updated.
  virtual int group_of(const ParamInfo& param) const = 0;
  // Misuse when the optimizer's options do not fit the model, such as a group that no parameter belongs to.
  virtual void check(const ModelInfo& model) const;
  // Updates master and state in place from grad ([n], contiguous, same device) on the segments, which ascend and do not
  // overlap, and writes copy there; elements outside them are left alone. The master is float32 or float64; grad has its
  // dtype, or is bfloat16 or float16 for a float32 master, and is widened first. Any NaN is one quiet NaN in copy.
  virtual void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments,
                    const Scalars& scalars) const = 0;
};

class Schedule {
 public:
  virtual ~Schedule();
  virtual std::string kind() const = 0;
  // Returns the learning rate of step `step` (0-based) for the optimizer's base rate. Pure.
  virtual double lr(int64_t step, double base) const = 0;
  // Whether `step` counts updates, so that a skipped step does not move the rate.
  virtual bool counts_updates() const { return false; }
};

ZT_OBJECT(Optimizer)
ZT_OBJECT(Schedule)

}  // namespace zt
