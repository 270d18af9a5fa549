#include "torch_messages.h"

#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <c10/util/Logging.h>

#include <mutex>

#include "zt/base/machine.h"
#include "zt/process/log.h"

C10_DECLARE_int(caffe2_log_level);

namespace zt::host {

namespace {

class WarningLogger : public c10::WarningHandler {
 public:
  explicit WarningLogger(World world) : world_(std::move(world)) {}
  void process(const c10::Warning& warning) override { log(LogLevel::warn, world_, "LibTorch: " + warning.msg()); }

 private:
  const World world_;
};

void hide_messages_below_errors() {
  if (!environment("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

}  // namespace

void route_torch_messages(const World& world) {
  static std::once_flag once;
  std::call_once(once, hide_messages_below_errors);
  // Warnings may come until the thread ends, so the handler must live as long.
  static thread_local WarningLogger logger(world);
  c10::WarningUtils::set_warning_handler(&logger);
}

}  // namespace zt::host
