#include "zt/model/layer.h"

#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/model/layer_extras.h"

namespace zt {

ZT_DEFINE_OBJECT(Layer, "Layer")

Context::~Context() = default;

const TokenPlaces& Context::tokens() {
  static const TokenPlaces kNone;
  return kNone;
}
KvCache::~KvCache() = default;
LayerExtras::~LayerExtras() = default;
ContextExtras::~ContextExtras() = default;
Layer::~Layer() = default;

void Context::Sink::add(const at::Tensor& sum) const {
  if (!view.defined()) return;
  if (first) view.copy_(sum);
  else view.add_(sum);
}

Per parse_per(const std::string& name) {
  for (const Per per : {Per::token, Per::sample}) {
    if (name == word_of(per)) return per;
  }
  misuse("a loss is summed per 'token' or per 'sample', not per '{}'", name);
}

Counts Layer::count(const BatchField&) const {
  return {};
}

LayerExtras& extras_of(Layer& layer) {
  static LayerExtras none;
  auto* own = dynamic_cast<LayerExtras*>(&layer);
  return own ? *own : none;
}

const LayerExtras& extras_of(const Layer& layer) {
  return extras_of(const_cast<Layer&>(layer));
}

ContextExtras& extras_of(Context& context) {
  if (auto* own = dynamic_cast<ContextExtras*>(&context)) return *own;
  misuse("a layer that runs as one of several experts has no buffers and keeps no choices: put it before or after the experts");
}

namespace {

thread_local Context* running = nullptr;

}  // namespace

RunningContext::RunningContext(Context& context) : before_(std::exchange(running, &context)) {}

RunningContext::~RunningContext() {
  running = before_;
}

const at::Tensor& Param::get() const {
  if (running) return running->param(*this);
  misuse(
      "parameter '{}' is read outside of a layer's forward: its values belong to a trainer. A forward reads them by "
      "context.param(...), and a backward keeps what its forward has read",
      name);
}

}  // namespace zt
