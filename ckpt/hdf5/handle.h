// Wrappers for libhdf5: a lock for one thread at a time, handles that close themselves, errors thrown as Fault.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>

namespace zt::ckpt {

// Holds the lock of libhdf5, which is not thread-safe; ranks may be threads of one process. Every use of libhdf5 requires one.
// While it is held, libhdf5 prints no errors.
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

// Throws a Fault "cannot WHAT: ..." with libhdf5's description of its last failure: the outermost call and the cause.
[[noreturn]] void hdf5_fault(const std::string& what);

// Returns the `result` of a libhdf5 call. Throws hdf5_fault(what) if it is negative.
template <class Result>
Result checked(Result result, const std::string& what) {
  if (result < 0) hdf5_fault(what);
  return result;
}

// An identifier of libhdf5, closed by the destructor.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  // Throws a Fault "cannot WHAT: ..." if `id` is negative.
  Handle(hid_t id, Close close, const std::string& what) : id_(checked(id, what)), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }

  operator hid_t() const { return id_; }
  // Closes now, and throws a Fault if that fails. Call it where closing writes data out; the destructor ignores errors.
  void close(const std::string& what) {
    if (id_ >= 0) checked(close_(std::exchange(id_, -1)), what);
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

}  // namespace zt::ckpt
