// Records the current action of a thread as text, such as "REDUCE_GRAD 3". Reports about runs that hang print it.
#pragma once

#include <string>

namespace zt {

// States what the calling thread does, from construction to destruction. Activities nest: the innermost is the current one.
// Keeps a reference: `text` must outlive the Activity. Construct and destroy it on the same thread.
class Activity {
 public:
  explicit Activity(const std::string& text);
  ~Activity();
  Activity(const Activity&) = delete;

 private:
  const std::string* before_;
};

// Returns the text of the calling thread's innermost Activity, or an empty string if it has none.
const std::string& current_activity();

}  // namespace zt
