// What ran when: spans of one rank, written as Chrome / Perfetto JSON ("traceEvents").
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace zt {

// Nanoseconds of the steady clock.
int64_t now_ns();

// Thread-safe. Recording costs a clock read and a store; it is off until `start`, and stops by itself when `capacity` is full.
class Trace {
 public:
  enum class Lane : uint8_t { compute, communication };
  struct Span {
    uint32_t name;  // index into names
    Lane lane;
    int64_t begin_ns, end_ns;
  };

  void start(size_t capacity = 200000);
  void stop();
  bool on() const { return on_; }
  uint32_t intern(const std::string& name);
  void add(uint32_t name, Lane lane, int64_t begin_ns, int64_t end_ns);

  // Writes this rank's spans; pid is the rank, tid the lane. Fault when the file cannot be written.
  void write(const std::string& path, int rank) const;
  // The events alone, as JSON text "{...},{...}": for joining the ranks' traces in one file.
  std::string events(int rank) const;
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  bool on_ = false;
  size_t capacity_ = 0;
  std::vector<std::string> names_;
  std::vector<Span> spans_;
};

}  // namespace zt
