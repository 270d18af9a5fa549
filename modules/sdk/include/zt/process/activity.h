// What a thread is doing, in words, for reports about runs that stand still: "REDUCE_GRAD 3".
#pragma once

#include <string>

namespace zt {

// While one lives, the calling thread is doing `text`, which outlives it. Innermost counts.
class Activity {
 public:
  explicit Activity(const std::string& text);
  ~Activity();
  Activity(const Activity&) = delete;

 private:
  const std::string* before_;
};

// Empty: nothing that has a name.
const std::string& current_activity();

}  // namespace zt
