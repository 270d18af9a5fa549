// Tells how a function that uses a FaultFs ended.
#pragma once

#include <functional>

#include "fault_fs.h"
#include "zt/base/error.h"

namespace zt::io {

enum class Outcome : uint8_t { done, fault, death };

inline Outcome outcome_of(const std::function<void()>& work) {
  try {
    work();
    return Outcome::done;
  } catch (const Fault&) {
    return Outcome::fault;
  } catch (const Death&) {
    return Outcome::death;
  }
}

}  // namespace zt::io
