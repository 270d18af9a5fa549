#include "numerics/support/odd_layers.h"

#include <ATen/ATen.h>

#include "parts/params.h"

namespace zt::test {

namespace {

using Tensors = std::vector<at::Tensor>;

std::shared_ptr<Param> vector_of(const std::string& name, int64_t size, double start) {
  return nn::make_vector(name, size, init_constant(start), "hidden");
}

// Returns a batch field [samples] as a factor for h [samples, seq, hidden].
at::Tensor factor(Context& context, const std::string& name, const at::Tensor& h) {
  return context.batch(name).to(h.scalar_type()).view({-1, 1, 1});
}

class PartlyUsed : public Layer {
 public:
  Tensors forward(at::TensorList in, Context& context) override {
    const at::Tensor h = in[0] + context.param(*used_).mean();
    if (!context.has_batch("wanted")) return {h};
    const at::Tensor wanted = factor(context, "wanted", h);
    if (!wanted.any().item<bool>()) return {h};
    return {h + context.param(*unused_).mean() * wanted};
  }
  Params params() const override { return {used_, unused_}; }
  std::string kind() const override { return "partly_used"; }

 private:
  std::shared_ptr<Param> used_ = vector_of("used", 5, 0.1), unused_ = vector_of("unused", 7, 0.2);
};

class Unread : public Layer {
 public:
  explicit Unread(int64_t hidden) : weight_(vector_of("weight", hidden, 0.3)) {}
  Tensors forward(at::TensorList in, Context& context) override { return {in[0] * context.param(*weight_)}; }
  Io io() const override { return {.inputs = {"h"}, .outputs = {{.name = "aside"}}}; }
  Params params() const override { return {weight_}; }
  std::string kind() const override { return "unread"; }

 private:
  std::shared_ptr<Param> weight_;
};

class Fork : public Layer {
 public:
  Tensors forward(at::TensorList in, Context&) override { return {in[0], in[0].tanh()}; }
  Io io() const override { return {.inputs = {"h"}, .outputs = {{.name = "h"}, {.name = "aside"}}}; }
  std::string kind() const override { return "fork"; }
};

class Join : public Layer {
 public:
  Tensors forward(at::TensorList in, Context&) override { return {in[0] + weight_->get() * in[1]}; }
  Io io() const override { return {.inputs = {"h", "aside"}, .outputs = {{.name = "h"}}}; }
  Params params() const override { return {weight_}; }
  std::string kind() const override { return "join"; }

 private:
  std::shared_ptr<Param> weight_ = vector_of("weight", 1, 0.4);
};

class Spike : public Layer {
 public:
  Tensors forward(at::TensorList in, Context& context) override {
    if (!context.has_batch("spike")) return {in[0]};
    return {in[0] + (in[0] - in[0].detach()) * factor(context, "spike", in[0])};
  }
  std::string kind() const override { return "spike"; }
};

class Hot : public Layer {
 public:
  Hot(int64_t numel, int64_t begin, int64_t end) : weight_(vector_of("weight", numel, 0.01)) {
    slope_ = at::full({numel}, 0.001, at::kDouble);
    slope_.narrow(0, begin, end - begin).fill_(1000);
  }
  Tensors forward(at::TensorList in, Context& context) override {
    const at::Tensor sum = (context.param(*weight_) * slope_.to(context.param(*weight_).scalar_type())).sum();
    context.loss("hot", sum * in[0].size(0), Per::sample);
    return {in[0]};
  }
  Io io() const override { return {.losses = {{"hot", Per::sample}}}; }
  Params params() const override { return {weight_}; }
  std::string kind() const override { return "hot"; }

 private:
  std::shared_ptr<Param> weight_;
  at::Tensor slope_;  // float64
};

class Guess : public Layer {
 public:
  Tensors forward(at::TensorList, Context& context) override {
    const at::Tensor valid = context.batch("labels") >= 0;
    const at::Tensor wanted = context.batch("tokens").to(context.param(*number_).scalar_type()) / 37;
    context.loss("loss", ((context.param(*number_) - wanted).square() * valid).sum(), Per::token);
    return {at::Tensor()};
  }
  Io io() const override {
    return {.inputs = {}, .outputs = {{.name = "guess", .differentiable = false}}, .losses = {LossInfo{}}};
  }
  Params params() const override { return {number_}; }
  Counts count(const BatchField& batch) const override {
    const at::Tensor labels = batch("labels");
    return {.tokens = (labels >= 0).sum().item<int64_t>(), .samples = labels.size(0)};
  }
  std::string kind() const override { return "guess"; }

 private:
  std::shared_ptr<Param> number_ = vector_of("number", 1, 0.7);
};

class Unplannable : public Layer {
 public:
  Tensors forward(at::TensorList in, Context& context) override {
    const double size = in[0].detach().abs().sum().item<double>();
    return {in[0] * context.param(*weight_) / (1 + size)};
  }
  Params params() const override { return {weight_}; }
  std::string kind() const override { return "unplannable"; }

 private:
  std::shared_ptr<Param> weight_ = vector_of("weight", 1, 0.5);
};

}  // namespace

std::shared_ptr<Layer> make_partly_used() {
  return std::make_shared<PartlyUsed>();
}
std::shared_ptr<Layer> make_unread(int64_t hidden) {
  return std::make_shared<Unread>(hidden);
}
std::shared_ptr<Layer> make_fork() {
  return std::make_shared<Fork>();
}

std::shared_ptr<Layer> make_join() {
  return std::make_shared<Join>();
}

std::shared_ptr<Layer> make_spike() {
  return std::make_shared<Spike>();
}
std::shared_ptr<Layer> make_hot(int64_t numel, int64_t begin, int64_t end) {
  return std::make_shared<Hot>(numel, begin, end);
}
std::shared_ptr<Layer> make_guess() {
  return std::make_shared<Guess>();
}
std::shared_ptr<Layer> make_unplannable() {
  return std::make_shared<Unplannable>();
}

}  // namespace zt::test
