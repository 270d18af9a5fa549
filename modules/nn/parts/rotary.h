// Rotary position embedding (Su et al. 2021) in Llama's convention: element i of a head's first half is rotated with element i of
// its second half, by the angle position / base^(2i / head_dim).
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::nn {

// The angles of tokens: row rows[i] of the tables holds the angles of token i.
struct Angles {
  at::Tensor cosine, sine;  // [positions, head_dim / 2]
  at::Tensor rows;          // [tokens] int64
};

// Holds the tables of angles by position. They are computed in double and grow as needed. Threads: one at a time.
class Rotary {
 public:
  Rotary(int64_t head_dim, double base) : head_dim_(head_dim), base_(base) {}
  // Returns the angles for elements of `dtype` on `device`: tables in float64 for float64, else in float32. positions: int64, any
  // shape; the result may refer to their memory. Waits for positions on a GPU, because the largest position decides the size of
  // the tables. Throws Misuse for a negative position. On device meta only `rows` is given: the tables outlive a step.
  Angles angles(const at::Tensor& positions, at::ScalarType dtype, at::Device device = at::kCPU);

 private:
  int64_t head_dim_;
  double base_;
  Angles table_;
};

enum class Turn : int8_t { forward = 1, back = -1 };

// Rotates the first `heads` heads of each token of x in place; each element is rounded once. Turn::back rotates by the negative
// angle. x: [samples, seq, columns], contiguous, columns >= heads * head_dim. angles: those of one sequence, or of the whole
// batch.
void rotate_heads(const at::Tensor& x, const Angles& angles, int64_t heads, Turn turn);

}  // namespace zt::nn
