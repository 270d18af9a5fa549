// Learning rate schedules: pure functions of the 0-based step. Each gives a multiple of the optimizer's base rate.
#pragma once

#include <memory>

#include "zt/base/value.h"
#include "zt/model/optimizer.h"

namespace zt::optim {

// All: Misuse for options out of range, and for lr() of a negative step.

// {}: the base rate.
std::shared_ptr<Schedule> make_constant(const Value& options);

// {warmup = 0, total, min_ratio = 0, start_ratio = 1 / (warmup + 1)}: from start_ratio in a straight line to 1 at step
// `warmup`, then to min_ratio at step `total`, where it stays. PyTorch: LinearLR then LinearLR; DeepSpeed: WarmupDecayLR.
std::shared_ptr<Schedule> make_warmup_linear(const Value& options);

// The same options; the way down is half a cosine (Loshchilov and Hutter, 2017). PyTorch: LinearLR then CosineAnnealingLR;
// DeepSpeed: WarmupCosineLR with start_ratio = warmup_min_ratio and min_ratio = cos_min_ratio.
std::shared_ptr<Schedule> make_warmup_cosine(const Value& options);

// {total, pct_start = 0.3, anneal_strategy = "cos" | "linear", div_factor = 25, final_div_factor = 1e4, three_phase = false}:
// PyTorch's OneCycleLR (Smith and Topin, 2018) with the base rate as max_lr and momentum left alone. From 1 / div_factor to 1
// and down to 1 / (div_factor * final_div_factor) at step total - 1, where it stays.
std::shared_ptr<Schedule> make_one_cycle(const Value& options);

// {step_size = 2000, step_rate = 1, staircase = false}: 1 + step_rate * step / step_size, the quotient rounded down for a
// staircase (Smith, 2018). DeepSpeed: LRRangeTest, with the base rate as lr_range_test_min_lr.
std::shared_ptr<Schedule> make_lr_range_test(const Value& options);

// {step_size, gamma = 0.1}: multiplied by gamma every step_size steps. PyTorch: StepLR.
std::shared_ptr<Schedule> make_step_decay(const Value& options);

}  // namespace zt::optim
