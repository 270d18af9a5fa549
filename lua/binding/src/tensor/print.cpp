#include "tensor/print.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <span>
#include <sstream>

#include "zt/base/tensor.h"

namespace zt::lua {

namespace {

constexpr int kLineWidth = 80;
constexpr int64_t kSummarizeAbove = 1000;
constexpr int64_t kEdge = 3;

// Returns the elements to print: all, or with `is_summarized` the edges of each long dim. The result is contiguous, on the CPU,
// double or int64.
at::Tensor shown_part(const at::Tensor& tensor, bool is_summarized) {
  at::Tensor part = tensor.detach();
  for (int64_t dim = 0; is_summarized && dim < part.dim(); ++dim) {
    const int64_t size = part.size(dim);
    if (size > 2 * kEdge) part = at::cat({part.narrow(dim, 0, kEdge), part.narrow(dim, size - kEdge, kEdge)}, dim);
  }
  return part.cpu().to(tensor.is_floating_point() ? at::kDouble : at::kLong).contiguous();
}

// The common format of all elements, wide enough for the longest.
class ElementFormat {
 public:
  ElementFormat(const at::Tensor& shown, at::ScalarType dtype)
      : is_floating_(shown.is_floating_point()), is_bool_(dtype == at::kBool) {
    if (is_floating_) choose_style({shown.const_data_ptr<double>(), static_cast<size_t>(shown.numel())});
    for (int64_t i = 0; i < shown.numel(); ++i) measure(shown, i);
  }

  size_t width() const { return width_; }

  std::string format(const at::Tensor& shown, int64_t i) const {
    const std::string text = bare(shown, i);
    return std::string(width_ - std::min(width_, text.size()), ' ') + text;
  }

 private:
  enum class Style { integral, fixed, scientific };

  void choose_style(std::span<const double> values) {
    double smallest = HUGE_VAL, largest = 0;
    bool are_integral = true;
    for (const double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      smallest = std::min(smallest, std::abs(value));
      largest = std::max(largest, std::abs(value));
      are_integral &= value == std::ceil(value);
    }
    if (largest == 0) return;
    style_ = are_integral ? Style::integral : Style::fixed;
    if (largest / smallest > 1000 || largest > 1e8 || smallest < 1e-4) style_ = Style::scientific;
  }

  // Widens the column for element i. Floating zeros, infinities and nans do not widen it.
  void measure(const at::Tensor& shown, int64_t i) {
    if (is_floating_) {
      const double value = shown.const_data_ptr<double>()[i];
      if (!std::isfinite(value) || value == 0) return;
    }
    width_ = std::max(width_, bare(shown, i).size());
  }

  std::string bare(const at::Tensor& shown, int64_t i) const {
    if (!is_floating_) {
      const int64_t value = shown.const_data_ptr<int64_t>()[i];
      if (is_bool_) return value ? "True" : "False";
      return fmt::format("{}", value);
    }
    const double value = shown.const_data_ptr<double>()[i];
    if (std::isnan(value)) return "nan";
    if (style_ == Style::scientific) return fmt::format("{:.4e}", value);
    if (style_ == Style::fixed) return fmt::format("{:.4f}", value);
    return fmt::format("{:.0f}{}", value, std::isinf(value) ? "" : ".");
  }

  bool is_floating_, is_bool_;
  Style style_ = Style::integral;
  size_t width_ = 1;
};

// Places brackets and line breaks. `sizes_` are those of the whole tensor; the elements come from `shown_`, in order.
class Layout {
 public:
  Layout(const at::Tensor& tensor, bool is_summarized)
      : sizes_(tensor.sizes()),
        is_summarized_(is_summarized),
        shown_(shown_part(tensor, is_summarized)),
        format_(shown_, tensor.scalar_type()) {}

  std::string text(size_t dim, size_t indent) {
    if (dim == sizes_.size()) return format_.format(shown_, next_++);
    const bool is_vector = dim + 1 == sizes_.size();
    std::vector<std::string> parts;
    const bool is_cut = is_summarized_ && sizes_[dim] > 2 * kEdge;
    for (int64_t i = 0; i < (is_cut ? 2 * kEdge : sizes_[dim]); ++i) {
      if (is_cut && i == kEdge) parts.emplace_back(is_vector ? " ..." : "...");
      parts.push_back(text(dim + 1, indent + 1));
    }
    return "[" + (is_vector ? join_lines(parts, indent) : join_blocks(parts, sizes_.size() - dim, indent)) + "]";
  }

 private:
  std::string join_lines(const std::vector<std::string>& parts, size_t indent) const {
    const size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
    const size_t per_line = std::max<size_t>(1, room / (format_.width() + 2));
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) text += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      text += parts[i];
    }
    return text;
  }

  // Separates rows by a line break, and blocks of higher dims by blank lines.
  static std::string join_blocks(const std::vector<std::string>& parts, size_t dims, size_t indent) {
    return fmt::format("{}", fmt::join(parts, "," + std::string(dims - 1, '\n') + std::string(indent + 1, ' ')));
  }

  at::IntArrayRef sizes_;
  bool is_summarized_;
  at::Tensor shown_;
  ElementFormat format_;
  int64_t next_ = 0;
};

std::string size_text(const at::Tensor& tensor) {
  return fmt::format("size=({}{})", fmt::join(tensor.sizes(), ", "), tensor.dim() == 1 ? "," : "");
}

std::vector<std::string> suffixes(const at::Tensor& tensor, bool has_elements) {
  std::vector<std::string> all;
  const at::ScalarType dtype = tensor.scalar_type();
  if (!tensor.is_cpu()) all.push_back("device='" + tensor.device().str() + "'");
  if (!has_elements && (tensor.dim() != 1 || tensor.is_meta())) all.push_back(size_text(tensor));
  const bool is_plain = dtype == at::kFloat || (has_elements && (dtype == at::kLong || dtype == at::kBool));
  if (!is_plain) all.push_back("dtype=torch." + dtype_name(dtype));
  if (tensor.grad_fn()) {
    const std::string name = tensor.grad_fn()->name();
    all.push_back("grad_fn=<" + name.substr(name.rfind(':') + 1) + ">");
  } else if (tensor.requires_grad()) {
    all.push_back("requires_grad=True");
  }
  return all;
}

std::string with_suffixes(std::string text, const std::vector<std::string>& suffixes, size_t indent) {
  const size_t last_break = text.rfind('\n');
  // PyTorch counts one character too many for a text without a line break. This code does the same, to break lines in the same
  // places.
  size_t line = last_break == std::string::npos ? text.size() + 2 : text.size() - last_break + 1;
  for (const auto& suffix : suffixes) {
    const bool breaks = line + suffix.size() + 2 > kLineWidth;
    text += breaks ? ",\n" + std::string(indent, ' ') + suffix : ", " + suffix;
    line = breaks ? indent + suffix.size() : line + suffix.size() + 2;
  }
  return text + ")";
}

}  // namespace

std::string tensor_text(const at::Tensor& tensor) {
  if (tensor.is_complex()) {
    return dtype_name(tensor.scalar_type()) + " as (real, imaginary): " + tensor_text(at::view_as_real(tensor));
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) return (std::ostringstream() << tensor).str();
  const std::string prefix = "tensor(";
  const bool has_elements = tensor.numel() > 0 && !tensor.is_meta();
  std::string text = tensor.is_meta() ? "..." : "[]";
  if (has_elements) text = Layout(tensor, tensor.numel() > kSummarizeAbove).text(0, prefix.size());
  return with_suffixes(prefix + text, suffixes(tensor, has_elements), prefix.size());
}

}  // namespace zt::lua
