// A checkpoint of one rank in memory, for the same layout.
#pragma once

#include <ATen/ops/empty.h>

#include <map>
#include <string>
#include <vector>

#include "zt/base/stateful.h"
#include "zt/train/trainer.h"

namespace zt::test {

// Keeps in memory what a rank would save.
class MemoryCheckpoint : public Visitor {
 public:
  bool is_load() const override { return is_load_; }
  void tensor(const std::string& name, const std::vector<int64_t>&, Piece piece) override {
    if (!piece.source && is_load_) piece.data.copy_(tensors_.at(name));
    else if (!piece.source) tensors_[name] = piece.data.clone();
    else if (is_load_) piece.source->write(0, tensors_.at(name));
    else piece.source->read(0, tensors_[name] = at::empty({piece.count}, piece.dtype()));
  }
  void end_of_tensors() override {}
  void value(const std::string& name, Value& value) override {
    if (is_load_) value = values_.at(name);
    else values_[name] = value;
  }
  void save(Trainer& trainer) {
    is_load_ = false;
    trainer.visit(*this);
  }
  void load(Trainer& trainer) {
    is_load_ = true;
    trainer.visit(*this);
  }

 private:
  bool is_load_ = false;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, Value> values_;
};

}  // namespace zt::test
