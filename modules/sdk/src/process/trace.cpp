#include "zt/process/trace.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "zt/base/error.h"

namespace zt {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Trace::start(size_t capacity) {
  const std::lock_guard lock(mutex_);
  capacity_ = capacity;
  spans_.clear();
  spans_.reserve(capacity);
  on_ = true;
}

void Trace::stop() {
  on_ = false;
}

uint32_t Trace::intern(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name) return static_cast<uint32_t>(i);
  }
  names_.push_back(name);
  return static_cast<uint32_t>(names_.size() - 1);
}

void Trace::add(uint32_t name, Lane lane, int64_t begin_ns, int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() >= capacity_) {
    on_ = false;
    return;
  }
  spans_.push_back({name, lane, begin_ns, end_ns});
}

size_t Trace::size() const {
  const std::lock_guard lock(mutex_);
  return spans_.size();
}

std::string Trace::events(int rank) const {
  const std::lock_guard lock(mutex_);
  std::string text =
      nlohmann::json{{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", fmt::format("rank {}", rank)}}}}
          .dump();
  for (const auto& span : spans_) {
    const nlohmann::json event{{"name", names_[span.name]},
                               {"cat", span.lane == Lane::compute ? "compute" : "communication"},
                               {"ph", "X"},
                               {"pid", rank},
                               {"tid", span.lane == Lane::communication ? 1 : 0},
                               {"ts", static_cast<double>(span.begin_ns) / 1000.0},
                               {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1000.0}};
    text += ",\n" + event.dump();
  }
  return text;
}

void Trace::write(const std::string& path, int rank) const {
  std::ofstream file(path);
  file << "{\"traceEvents\": [\n" << events(rank) << "\n]}\n";
  file.close();
  if (!file) fault("cannot write the trace to {}: does the folder exist, is the disk full?", path);
}

}  // namespace zt
