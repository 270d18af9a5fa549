#include "zt/process/activity.h"

namespace zt {

namespace {

thread_local const std::string* current = nullptr;

}  // namespace

Activity::Activity(const std::string& text) : before_(current) {
  current = &text;
}

Activity::~Activity() {
  current = before_;
}

const std::string& current_activity() {
  static const std::string nothing;
  return current ? *current : nothing;
}

}  // namespace zt
