// Optimizers, which update flat shards, and schedules, which give the learning rate of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/option_texts.h"
#include "zt/model/model.h"
#include "zt/model/unit.h"

namespace zt {

// A contiguous range of a shard that belongs to one parameter.
struct Segment {
  int param = 0;      // index into ModelInfo::params
  int group = 0;      // from Optimizer::group_of
  int64_t begin = 0;  // in elements of the shard
  int64_t end = 0;
  int64_t first = 0;  // the element at `begin`, counted in the rank's boxes of the parameter
};

// A shard of a unit's parameters (n elements) and of its optimizer state.
struct FlatState {
  at::Tensor master;                        // [n] parameters, updated in place
  std::map<std::string, at::Tensor> state;  // each [n], in the master's dtype
  // [n] bfloat16 or float16, for a float32 master: receives the updated master, rounded to nearest even. Undefined means no copy.
  at::Tensor copy = {};
  const ModelInfo* model = nullptr;  // whose parameters the segments name; null where nothing needs their names
};

// Numbers that change from step to step.
struct Scalars {
  double lr = 0;          // the schedule's learning rate; multiplied by a group's lr_scale
  double grad_scale = 1;  // multiplies the gradient before its use, in the master's dtype: 1 / N, clipping, loss scale
  int64_t step = 1;       // 1-based count of updates, for bias corrections
};

// How an optimizer updates a parameter.
enum class Scope : uint8_t {
  element,  // each element by itself: the flat buffer can be sharded anywhere
  tensor,   // as a whole, on the rank that owns it
};

// A whole parameter and its optimizer state, on the rank that owns it.
struct OwnedTensor {
  const ParamInfo& param;
  int group = 0;                            // from Optimizer::group_of
  at::Tensor values;                        // [the whole shape] in the master's dtype, updated in place
  std::map<std::string, at::Tensor> state;  // as states_of says, zeros at first
};

// An optimizer's rule and its options. The state is in FlatState.
class Optimizer : public MadeFromOptions {
 public:
  virtual ~Optimizer();
  virtual std::string kind() const = 0;                      // "adamw"
  virtual double lr() const = 0;                             // the base learning rate
  virtual std::vector<std::string> state_names() const = 0;  // "exp_avg", "exp_avg_sq": zero at the start
  virtual Scope scope(const ParamInfo& param) const;         // by default Scope::element
  // Returns the parameter's states, for each of its elements or, in tensor scope, of any shape. By default each of state_names
  // has the parameter's shape. Only an optimizer with a parameter in tensor scope may return others.
  virtual std::vector<StateInfo> states_of(const ParamInfo& param) const;
  // Returns the index of the parameter's options group, or -1 if the parameter is not updated.
  virtual int group_of(const ParamInfo& param) const = 0;
  // Throws Misuse if the options do not fit the model, for example if a group has no parameter.
  virtual void check(const ModelInfo& model) const;
  // Updates master and state in place from `grad` ([n], contiguous, same device), and writes copy. Changes only the elements in
  // `segments`, which must be ascending and must not overlap. The master is float32 or float64. `grad` has the master's dtype;
  // for a float32 master it may be bfloat16 or float16, and is widened first. Every NaN in copy has the same bits: the quiet NaN.
  virtual void step(FlatState& shard, const at::Tensor& grad, std::span<const Segment> segments,
                    const Scalars& scalars) const = 0;
  // Updates a parameter in tensor scope. `grad` ([the whole shape], in the master's dtype) is multiplied by the grad_scale
  // already, and may be changed. Equal arguments give equal bits on all ranks. By default it throws Fault.
  virtual void step_tensor(const OwnedTensor& tensor, const at::Tensor& grad, const Scalars& scalars) const;
  // Returns the work of this step in any unit, by which parameters are given to their owners. By default the number of elements.
  virtual double work_of(const ParamInfo& param) const;
};

// A learning-rate schedule.
class Schedule : public MadeFromOptions {
 public:
  virtual ~Schedule();
  virtual std::string kind() const = 0;
  // Returns the learning rate of step `step` (0-based) for the optimizer's base rate. Pure.
  virtual double lr(int64_t step, double base) const = 0;
  // Returns whether `step` counts updates, so that a skipped step does not advance the schedule.
  virtual bool counts_updates() const { return false; }
};

ZT_OBJECT(Optimizer)
ZT_OBJECT(Schedule)

}  // namespace zt
