// Providers that take no time but say that they did, and a trial that believes them.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "zt/error.h"
#include "zt/gemm_choice.h"

namespace zt::test {

using Lines = std::vector<std::string>;

inline thread_local double last_seconds = 0;  // what the fake clock reads: set by the provider that ran

// Multiplies by `aten` and does something to the result.
class Fake : public Gemm {
 public:
  Fake(double seconds, std::function<void(const at::Tensor& c)> spoil = {}) : seconds_(seconds), spoil_(std::move(spoil)) {}
  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kFloat; }
  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    find_gemm("aten").run(a, b, c, beta, alpha);
    if (spoil_) spoil_(c);
    last_seconds = seconds_;
  }

 private:
  double seconds_;
  std::function<void(const at::Tensor& c)> spoil_;
};

inline void register_fakes() {
  static const bool once [[maybe_unused]] = [] {
    register_gemm("fast", std::make_shared<Fake>(0.5));
    register_gemm("fastest", std::make_shared<Fake>(0.25));
    register_gemm("hardly_faster", std::make_shared<Fake>(0.98));
    register_gemm("slow", std::make_shared<Fake>(2));
    register_gemm("hopeless", std::make_shared<Fake>(6));
    register_gemm("wrong", std::make_shared<Fake>(0.1, [](const at::Tensor& c) { c.select(0, c.size(0) - 1).mul_(1.001); }));
    register_gemm("not_finite", std::make_shared<Fake>(0.1, [](const at::Tensor& c) { c.select(1, 0).fill_(NAN); }));
    register_gemm("overwrites", std::make_shared<Fake>(0.1, [](const at::Tensor& c) { c.zero_(); }));
    register_gemm("throws", std::make_shared<Fake>(0.1, [](const at::Tensor&) { fault("the fake library returned 3"); }));
    return true;
  }();
}

struct Trial {
  Lines lines;
  GemmTrial trial;

  explicit Trial(Lines providers) {
    register_fakes();
    trial.providers = std::move(providers);
    trial.report = [this](const std::string& line) { lines.push_back(line); };
    trial.seconds = [](const std::function<void()>& product) {
      last_seconds = 1;  // aten does not set it
      product();
      return last_seconds;
    };
  }
  std::string choose(const GemmShape& shape) { return choose_gemm({shape}, trial).provider(gemm_class(shape)); }
};

}  // namespace zt::test
