// libhdf5 as this project uses it: one thread at a time, handles that close themselves, errors that are thrown.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

namespace zt::ckpt {

// Held around every use of libhdf5, which is not safe for threads: ranks may be threads of one process. Meanwhile libhdf5 prints
// nothing.
class Hdf5Session {
 public:
  Hdf5Session();
  ~Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// Fault "cannot WHAT: ..." with what libhdf5 says about its last failure: the call as a whole and the cause.
[[noreturn]] void hdf5_fault(const std::string& what);

// `result` of a call of libhdf5, or hdf5_fault when it is negative.
template <class Result>
Result checked(Result result, const std::string& what) {
  if (result < 0) hdf5_fault(what);
  return result;
}

// An identifier of libhdf5 and how it is closed.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  // Fault "cannot WHAT: ..." when `id` is negative.
  Handle(hid_t id, Close close, const std::string& what) : id_(checked(id, what)), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }

  operator hid_t() const { return id_; }
  // Where an error in closing matters: when what was written goes out.
  void close(const std::string& what) {
    if (id_ >= 0) checked(close_(std::exchange(id_, -1)), what);
  }

 private:
  void reset() {
    if (id_ >= 0) close_(std::exchange(id_, -1));
  }

  hid_t id_ = -1;
  Close close_ = nullptr;
};

}  // namespace zt::ckpt
