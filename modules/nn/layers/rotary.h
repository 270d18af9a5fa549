// Rotary position embedding (Su et al. 2021) in Llama's convention: element i of a head's first half turns with element i of its
// second half, by the angle position / base^(2i / head_dim).
#pragma once

#include <ATen/core/Tensor.h>

namespace zt::nn {

// The angles of tokens: token i turns by row rows[i] of the tables.
struct Angles {
  at::Tensor cosine, sine;  // [places, head_dim / 2]
  at::Tensor rows;          // [tokens] int64
};

// Tables by position, computed in double and grown as needed. One thread uses an object.
class Rotary {
 public:
  Rotary(int64_t head_dim, double base) : head_dim_(head_dim), base_(base) {}
  // positions: int64, any shape, not negative; they may be kept. For turning elements of dtype `dtype` on `device`: in float64
  // for that dtype, otherwise in float32. Positions on a GPU are waited for: the largest one sizes the tables.
  Angles angles(const at::Tensor& positions, at::ScalarType dtype, at::Device device = at::kCPU);

 private:
  int64_t head_dim_;
  double base_;
  Angles table_;
};

enum class Turn : int8_t { forward = 1, back = -1 };

// Turns the first `heads` heads of every row of x in place; each element is rounded once. x: [samples, seq, columns], contiguous,
// columns >= heads * head_dim; angles: of the tokens of a sequence, or of the batch.
void rotate_heads(const at::Tensor& x, const Angles& angles, int64_t heads, Turn turn);

}  // namespace zt::nn
