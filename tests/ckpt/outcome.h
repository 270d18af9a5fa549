// How work ended that met trouble of a FaultFs.
#pragma once

#include <functional>

#include "ckpt/fault_fs.h"
#include "zt/error.h"

namespace zt::ckpt {

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

}  // namespace zt::ckpt
