#include "shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/base/tensor.h"

namespace zt::comm {

namespace {

[[noreturn]] void out_of_memory(size_t bytes, const std::string& doing) {
  const std::string why = std::strerror(errno);
  const int64_t available = machine_memory().free;
  fault(
      "cannot get {} of shared memory ({}: {}); the machine has {} left. Use smaller buffers, more ranks, or raise the limit "
      "(ulimit -a)",
      human_bytes(static_cast<int64_t>(bytes)), doing, why, available < 0 ? "an unknown amount" : human_bytes(available));
}

// Throws Fault if the machine has less. The kernel would grant more than there is and kill a rank later.
void check_available(size_t bytes) {
  const int64_t available = machine_memory().free;
  if (available < 0 || bytes <= static_cast<size_t>(available)) return;
  errno = ENOMEM;
  out_of_memory(bytes, "taking the pages");
}

// Allocates the pages of a part of a file, which it extends if needed.
void take_pages(int descriptor, size_t offset, size_t bytes) {
  errno = posix_fallocate(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (errno != 0) out_of_memory(bytes, "taking the pages");
}

}  // namespace

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

SharedMemory SharedMemory::create(size_t bytes, Pages pages) {
  SharedMemory memory;
  memory.bytes_ = whole_pages(bytes);
  if (pages == Pages::now) check_available(memory.bytes_);
  memory.descriptor_ = memfd_create("ztoolkit", MFD_CLOEXEC);
  if (memory.descriptor_ < 0) out_of_memory(memory.bytes_, "making the file");
  if (ftruncate(memory.descriptor_, static_cast<off_t>(memory.bytes_)) != 0) out_of_memory(memory.bytes_, "setting its size");
  if (pages == Pages::now) take_pages(memory.descriptor_, 0, memory.bytes_);
  memory.map(pages, "mapping");
  return memory;
}

SharedMemory SharedMemory::open(const MemoryAddress& address) {
  SharedMemory memory;
  memory.bytes_ = address.bytes;
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  memory.descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (memory.descriptor_ < 0) {
    fault(
        "cannot open the shared memory of process {} ({}: {}): ranks that share memory must run as one user and in one PID "
        "namespace; else use backend = \"mpi\"",
        address.process, path, std::strerror(errno));
  }
  memory.map(Pages::on_demand, "mapping what another rank made");
  return memory;
}

void SharedMemory::map(Pages pages, const std::string& doing) {
  const int populate = pages == Pages::now ? MAP_POPULATE : 0;
  void* place = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | populate, descriptor_, 0);
  if (place == MAP_FAILED) out_of_memory(bytes_, doing);
  data_ = static_cast<char*>(place);
}

SharedMemory::~SharedMemory() {
  if (data_) munmap(data_, bytes_);
  hide();
}

MemoryAddress SharedMemory::address() const {
  return {getpid(), descriptor_, bytes_};
}

void SharedMemory::hide() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

size_t SharedMemory::extend(size_t bytes) {
  const size_t offset = bytes_ + extended_, added = whole_pages(bytes);
  check_available(added);
  take_pages(descriptor_, offset, added);
  extended_ += added;
  return offset;
}

void SharedMemory::discard() {
  if (data_) madvise(data_, bytes_, MADV_REMOVE);
}

void SharedMemory::swap(SharedMemory& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(extended_, other.extended_);
  std::swap(descriptor_, other.descriptor_);
}

SharedPart::SharedPart(const SharedMemory& memory, size_t offset, size_t bytes) : bytes_(whole_pages(bytes)), offset_(offset) {
  void* place =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.descriptor(), static_cast<off_t>(offset));
  if (place == MAP_FAILED) out_of_memory(bytes_, "mapping");
  data_ = static_cast<char*>(place);
}

SharedPart::~SharedPart() {
  if (data_) munmap(data_, bytes_);
}

SharedPart& SharedPart::operator=(SharedPart&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(offset_, other.offset_);
  return *this;
}

void SharedPart::discard() {
  if (data_) madvise(data_, bytes_, MADV_REMOVE);
}

}  // namespace zt::comm
