// Rotary position embedding (Su et al. 2021) in Llama's convention: element i of a head's first half is rotated with element i of
// its second half, by the angle position / base^(2i / head_dim). RopeScaling makes angles smaller, for longer sequences than
// those of the first training.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "zt/base/options.h"

namespace zt::nn {

enum class RopeScalingType : uint8_t {
  linear,  // divides all angles by `factor` (Chen et al. 2023)
  llama3,  // divides the angles of long wavelengths only (Llama 3.1)
};
constexpr auto words_of(RopeScalingType) {
  return std::array{"linear", "llama3"};
}

// With llama3, a pair of elements that turns n times in `original` positions keeps its angle if n >= high_freq_factor. The angle
// is divided by `factor` if n <= low_freq_factor. Between the two, it is a weighted mean of both, whose weights are linear in n.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::linear;
  double factor = 1;
  std::optional<double> low_freq_factor = {}, high_freq_factor = {};
  std::optional<int64_t> original = {};  // tokens of the longest sequence of the first training

  bool operator==(const RopeScaling&) const = default;
};
// Refuses options that llama3 lacks or that linear does not use.
const Schema<RopeScaling>& schema_of(const RopeScaling& scaling);

// The angles of tokens: row rows[i] of the tables holds the angles of token i.
struct Angles {
  at::Tensor cosine, sine;  // [positions, head_dim / 2]
  at::Tensor rows;          // [tokens] int64
};

// Throws Misuse if the least position is negative.
void check_not_negative(int64_t least);

// Holds the tables of angles by position, one per dtype and device. They are computed in double and grow as needed. Threads: one
// at a time.
class Rotary {
 public:
  Rotary(int64_t head_dim, double base, std::optional<RopeScaling> scaling = {})
      : head_dim_(head_dim), base_(base), scaling_(std::move(scaling)) {}
  // Returns the object of this thread with these options, which all layers use: for long sequences a table is large. A rank has
  // one thread that makes its layers and runs them.
  static std::shared_ptr<Rotary> shared(int64_t head_dim, double base, const std::optional<RopeScaling>& scaling);
  // Returns the angles for elements of `dtype` on `device`: tables in float64 for float64, else in float32. positions: int64, any
  // shape; the result may refer to their memory. Waits for positions on a GPU, because the largest position decides the size of
  // the tables. Throws Misuse for a negative position. On device meta only `rows` is given: the tables outlive a step.
  Angles angles(const at::Tensor& positions, at::ScalarType dtype, at::Device device = at::kCPU);

 private:
  int64_t head_dim_;
  double base_;
  std::optional<RopeScaling> scaling_;
  std::vector<Angles> tables_;  // without rows

  const Angles& table(int64_t needed, at::ScalarType dtype, at::Device device);
  Angles made_table(int64_t positions, at::ScalarType dtype, at::Device device) const;
};

enum class Turn : int8_t { forward = 1, back = -1 };

// Rotates the first `heads` heads of each token of x in place; each element is rounded once. Turn::back rotates by the negative
// angle. x: [samples, seq, columns], contiguous, columns >= heads * head_dim. angles: those of one sequence, or of the whole
// batch.
void rotate_heads(const at::Tensor& x, const Angles& angles, int64_t heads, Turn turn);

}  // namespace zt::nn
