#include "together.h"

#include <ATen/ops/full.h>

#include <exception>

#include "counts.h"
#include "zt/base/error.h"

namespace zt {

void run_together(Communicator* control, const std::function<void()>& body) {
  if (!control) return body();
  std::optional<StepFailure> mine;
  std::exception_ptr failure;
  try {
    body();
  } catch (const Fault&) {
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    mine = StepFailure{describe(error)};
  }
  const at::Tensor failed = at::full({1}, mine ? 1 : 0, at::kLong);
  control->all_reduce(failed, failed).synchronize();
  if (failed.item<int64_t>() == 0) return;
  const std::string first = share_failure(*control, mine);
  if (failure) std::rethrow_exception(failure);
  throw Misuse(first);
}

}  // namespace zt
