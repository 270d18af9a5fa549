// A layer that computes nothing and sleeps for a set time, so that a few cores can play many ranks.
#pragma once

#include <chrono>
#include <memory>

#include "zt/model/layer.h"

namespace zt {

struct SleepTimes {
  std::chrono::microseconds forward, input_grad, weight_grad;
};

// Returns a layer with one parameter of one element: out = in * weight. The first layer of a model reads the batch field "x".
std::shared_ptr<Layer> make_sleep_layer(const SleepTimes& times, bool is_first);
// Returns a layer that adds the mean of its input as the loss, and takes no time.
std::shared_ptr<Layer> make_mean_loss();

}  // namespace zt
