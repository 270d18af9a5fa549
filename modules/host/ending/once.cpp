#include "once.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace zt::host {

bool first_in_folder(const std::string& folder, const std::string& key) {
  const std::string path = folder + "/ztoolkit-failure-" + std::to_string(std::hash<std::string>{}(key));
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return errno != EEXIST;
  close(file);
  return true;
}

}  // namespace zt::host
