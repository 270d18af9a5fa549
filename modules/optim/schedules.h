// Learning rate schedules: pure functions of the 0-based step. A schedule gives a multiple of the optimizer's base rate.
#pragma once

#include <memory>

#include "zt/base/value.h"
#include "zt/model/optimizer.h"

namespace zt::optim {

// All functions throw Misuse if an option is out of range. Their schedules throw Misuse for a negative step. The comments give
// the options in braces, and rates as multiples of the base rate.

// {}: always the base rate.
std::shared_ptr<Schedule> make_constant(const Value& options);

// {warmup = 0, total, min_ratio = 0, start_ratio = 1 / (warmup + 1)}: rises linearly from start_ratio to 1 at step `warmup`, then
// falls linearly to min_ratio at step `total` and stays there. PyTorch: LinearLR then LinearLR; DeepSpeed: WarmupDecayLR.
std::shared_ptr<Schedule> make_warmup_linear(const Value& options);

// The same options; falls along half a cosine wave (Loshchilov and Hutter, 2017). PyTorch: LinearLR then CosineAnnealingLR;
// DeepSpeed: WarmupCosineLR with start_ratio = warmup_min_ratio and min_ratio = cos_min_ratio.
std::shared_ptr<Schedule> make_warmup_cosine(const Value& options);

// {total, pct_start = 0.3, anneal_strategy = "cos" | "linear", div_factor = 25, final_div_factor = 1e4, three_phase = false}:
// PyTorch's OneCycleLR (Smith and Topin, 2018) with the base rate as max_lr, without its momentum cycle. Rises from 1 /
// div_factor to 1, then falls to 1 / (div_factor * final_div_factor) at step total - 1 and stays there. With three_phase it falls
// to 1 / div_factor as fast as it rose, then on to the last rate.
std::shared_ptr<Schedule> make_one_cycle(const Value& options);

// {step_size = 2000, step_rate = 1, staircase = false}: 1 + step_rate * (step / step_size). With staircase the quotient is
// rounded down (Smith, 2018). DeepSpeed: LRRangeTest, with the base rate as lr_range_test_min_lr.
std::shared_ptr<Schedule> make_lr_range_test(const Value& options);

// {step_size, gamma = 0.1}: the rate is multiplied by gamma every step_size steps. PyTorch: StepLR.
std::shared_ptr<Schedule> make_step_decay(const Value& options);

}  // namespace zt::optim
