// Elements as they were at some time, for a thread that saves them while the rank goes on.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "zt/base/stateful.h"
#include "zt/execute/homes.h"

namespace zt {

// Elements that are copied, or kept where they lie. What was prefetched is read while the thread works on what comes before.
class KeptElements final : public PieceSource {
 public:
  struct Part {
    int64_t at, count;  // its place in the source, and its elements
    at::Tensor copy;    // undefined if they lie elsewhere
    std::shared_ptr<KeptBytes> bytes = {};
    int64_t place = 0;  // of their first byte in the tier
  };
  KeptElements(std::vector<Part> parts, at::ScalarType dtype) : parts_(std::move(parts)), dtype_(dtype) {}

  at::ScalarType dtype() const override { return dtype_; }
  void read(int64_t first, at::Tensor to) const override;
  void prefetch(int64_t first, int64_t count) override;
  void release(int64_t first, int64_t count) override;
  void write(int64_t first, const at::Tensor& from) override;                      // throws Fault
  std::shared_ptr<PieceSource> keep(int64_t first, int64_t count) const override;  // throws Fault

 private:
  // Some elements of a part on their way to memory.
  struct Window {
    const Part* part;
    int64_t first, count;
    at::Tensor elements;
    Work work;
  };

  template <class Visit>
  void for_each(int64_t first, int64_t wanted, const Visit& visit) const;
  Window start(const Part& part, int64_t first, int64_t count) const;

  const std::vector<Part> parts_;
  const at::ScalarType dtype_;
  std::deque<Window> windows_;  // prefetched and not released
};

}  // namespace zt
