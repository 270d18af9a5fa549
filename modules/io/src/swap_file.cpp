#include "zt/io/swap_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "transfer_queue.h"
#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt::io {

namespace {

// Returns a name that no other swap file of this machine has. Most file systems need none.
std::string new_name(const std::string& folder) {
  static std::atomic<int> number{0};
  return fmt::format("{}/ztoolkit-swap-{}-{}", folder, getpid(), number++);
}

// Gives a file disk space, so that a full disk is found now. Where the file system cannot do so, sets the size only.
void make_room(FileSystem& files, File& file, const std::string& path, int64_t bytes) {
  if (bytes > 0 && !reserve({files, path, bytes}, file, bytes))
    retry_or_fault(files, "set the size of", path, [&] { return file.truncate(bytes); });
}

void check(const SwapOptions& options) {
  if (options.folders.empty()) misuse("a swap file needs a folder");
  if (options.bytes < 0 || options.bytes % kSwapAlignment != 0)
    misuse("the size of a swap file must be a multiple of {} bytes, got {}", kSwapAlignment, options.bytes);
  if (options.depth < 1) misuse("the depth of a swap file must be at least 1, got {}", options.depth);
  if (options.block <= 0 || options.block % kSwapAlignment != 0)
    misuse("the block of a swap file must be a multiple of {} bytes, got {}", kSwapAlignment, options.block);
}

}  // namespace

SwapFile::SwapFile(FileSystem& files, SwapOptions options)
    : options_(std::move(options)), of_lane_(static_cast<size_t>(std::max(options_.depth, 1))) {
  check(options_);
  const auto parts = static_cast<int64_t>(options_.folders.size());
  const int64_t blocks = (options_.bytes + options_.block - 1) / options_.block;
  std::vector<std::unique_ptr<File>> opened;
  for (int64_t part = 0; part < parts; ++part) {
    paths_.push_back(new_name(options_.folders[static_cast<size_t>(part)]));
    opened.push_back(open_file(files, paths_.back(), {Access::scratch, options_.caching, 1}));
    const int64_t share = (blocks / parts + (part < blocks % parts ? 1 : 0)) * options_.block;
    make_room(files, *opened.back(), paths_.back(), share);
  }
  file_ = files.stripe(std::move(opened), options_.block, options_.depth);
  queue_ = std::make_unique<TransferQueue>(TransferContext{files, paths_.front(), options_.bytes}, *file_, options_.depth);
}

SwapFile::~SwapFile() = default;

bool SwapFile::is_direct() const {
  return file_->alignment() > 1;
}

bool SwapFile::pin(std::span<std::byte> memory) {
  return memory.empty() || file_->pin(memory) == 0;
}

SwapFile::Ticket SwapFile::read(int64_t offset, std::span<std::byte> memory) {
  return start(IoDirection::read, offset, memory.data(), static_cast<int64_t>(memory.size()));
}

SwapFile::Ticket SwapFile::write(int64_t offset, std::span<const std::byte> memory) {
  auto* source = const_cast<std::byte*>(memory.data());  // NOLINT: a write does not change it
  return start(IoDirection::write, offset, source, static_cast<int64_t>(memory.size()));
}

SwapFile::Ticket SwapFile::start(IoDirection direction, int64_t offset, std::byte* memory, int64_t bytes) {
  if ((offset | bytes | static_cast<int64_t>(reinterpret_cast<intptr_t>(memory))) % kSwapAlignment != 0)
    misuse("a transfer of {} bytes at offset {} of a swap file, from an address that ends in {:#x}: all are multiples of {}",
           bytes, offset, reinterpret_cast<uintptr_t>(memory) % kSwapAlignment, kSwapAlignment);
  if (offset < 0 || bytes < 0 || bytes > options_.bytes || offset > options_.bytes - bytes)
    misuse("bytes {} to {} lie outside of a swap file of {} bytes", offset, offset + bytes, options_.bytes);
  if (free_.empty()) {
    free_.push_back(static_cast<Ticket>(transfers_.size()));
    transfers_.emplace_back();
  }
  const Ticket ticket = free_.back();
  free_.pop_back();
  Transfer& transfer = transfers_[static_cast<size_t>(ticket)];
  transfer = {};
  for (int64_t moved = 0; moved < bytes;) {
    const int64_t count = std::min(options_.block - (offset + moved) % options_.block, bytes - moved);
    waiting_.push_back({{direction, offset + moved, memory + moved, count}, ticket});
    moved += count;
    ++transfer.operations;
  }
  start_waiting();
  return ticket;
}

// Starts the operations that waited for a lane, in order.
void SwapFile::start_waiting() {
  while (!waiting_.empty() && !queue_->is_full()) {
    auto [operation, ticket] = waiting_.front();
    waiting_.pop_front();
    operation.tag = queue_->take_lane();
    of_lane_[static_cast<size_t>(operation.tag)] = ticket;
    const auto block = static_cast<size_t>(operation.offset / options_.block);
    queue_->start(operation, operation.bytes, &paths_[block % paths_.size()]);
  }
}

void SwapFile::finish(int lane, const std::exception_ptr& fault) {
  Transfer& transfer = transfers_[static_cast<size_t>(of_lane_[static_cast<size_t>(lane)])];
  --transfer.operations;
  if (fault && !transfer.fault) transfer.fault = fault;
  start_waiting();
}

bool SwapFile::is_done(Ticket ticket) {
  const Transfer& transfer = transfers_[static_cast<size_t>(ticket)];
  while (transfer.operations > 0 && queue_->under_way() > 0) {
    const auto end = queue_->poll_one();
    if (!end) return false;
    finish(end->lane, end->fault);
  }
  return transfer.operations == 0;
}

void SwapFile::wait(Ticket ticket) {
  Transfer& transfer = transfers_[static_cast<size_t>(ticket)];
  while (transfer.operations > 0) {
    const TransferQueue::End end = queue_->wait_one();
    finish(end.lane, end.fault);
  }
  free_.push_back(ticket);
  if (transfer.fault) std::rethrow_exception(std::exchange(transfer.fault, nullptr));
}

}  // namespace zt::io
