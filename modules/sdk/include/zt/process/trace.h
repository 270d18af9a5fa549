// A timeline of one rank: spans of time, written as Chrome / Perfetto JSON ("traceEvents").
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace zt {

// Returns the time of the steady clock in nanoseconds.
int64_t now_ns();

// Records spans. Recording is off until `start`, and stops by itself after `capacity` spans. Call start, stop, on and add on one
// thread (the rank's); the other functions are thread-safe.
class Trace {
 public:
  // The rank's thread computes (`compute`), or moves tensors between ranks and waits for other ranks (`exchange`). Works in
  // flight, from their begin to their end, are `communication`.
  enum class Lane : uint8_t { compute, exchange, communication };
  struct Span {
    uint32_t name;  // index into names
    Lane lane;
    int64_t begin_ns, end_ns;
  };

  void start(size_t capacity = 200000);
  void stop();
  bool on() const { return on_; }
  // Returns the index of `name` in the table of names, and adds the name if it is new.
  uint32_t intern(const std::string& name);
  // Records a span, or drops it and stops if `capacity` is reached. The caller checks on() before it reads the clock.
  void add(uint32_t name, Lane lane, int64_t begin_ns, int64_t end_ns);

  // Writes the spans to a file. pid is the rank. tid is 0 for the rank's thread, 1 for works in flight, and cat is
  // "compute" or "communication". Throws Fault if the file cannot be written.
  void write(const std::string& path, int rank) const;
  // Returns the events only, as JSON text "{...},{...}", to join the traces of all ranks in one file.
  std::string events(int rank) const;
  size_t size() const;  // number of spans

 private:
  mutable std::mutex mutex_;
  bool on_ = false;
  size_t capacity_ = 0;
  std::vector<std::string> names_;
  std::vector<Span> spans_;
};

}  // namespace zt
