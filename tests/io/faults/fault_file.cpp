#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "fault_state.h"

namespace zt::io {

namespace {

class FaultFile : public File {
 public:
  FaultFile(std::shared_ptr<FaultFs::State> state, std::shared_ptr<MemoryFile> file, std::string path, const OpenOptions& options)
      : state_(std::move(state)),
        file_(std::move(file)),
        path_(std::move(path)),
        alignment_(options.caching == Caching::direct ? state_->options.alignment : 1),
        access_(options.access),
        depth_(static_cast<size_t>(options.depth)) {
    if (access_ == Access::replace) file_->is_locked = true;
    if (access_ == Access::scratch) state_->unnamed.push_back(file_);
  }

  // Aborts if operations are under way: their memory may be freed too early, which a test would find only by chance.
  ~FaultFile() override {
    const std::lock_guard lock(*state_->mutex);
    if (access_ == Access::replace) file_->is_locked = false;
    if (!pending_.empty() && !state_->is_dead) {
      fmt::print(stderr, "{} was closed with {} operations under way\n", path_, pending_.size());
      std::abort();
    }
  }

  void set_depth(int depth) { depth_ = static_cast<size_t>(depth); }
  int64_t alignment() const override { return alignment_; }

  void submit(const FileOperation& operation) override {
    const bool is_read = operation.direction == IoDirection::read;
    const int64_t end = operation.offset + operation.bytes;
    const Call call(*state_, fmt::format("{} {} [{}, {})", is_read ? "read" : "write", path_, operation.offset, end));
    if (pending_.size() == depth_) throw std::logic_error(path_ + ": more operations under way than the file was opened for");
    pending_.push_back({operation, call.trouble});
  }

  Completion wait() override {
    const Call call(*state_, "wait " + path_);
    if (pending_.empty()) throw std::logic_error(path_ + ": nothing is under way");
    return complete(call);
  }

  // Half of the calls find that nothing has ended.
  std::optional<Completion> poll() override {
    const Call call(*state_, "poll " + path_);
    if (pending_.empty() || state_->random() % 2 == 0) return std::nullopt;
    return complete(call);
  }

  int pin(std::span<std::byte> /*memory*/) override {
    const Call call(*state_, "pin " + path_);
    return call.error;
  }

  int64_t size() override {
    const Call call(*state_, "size " + path_);
    return call.error != 0 ? call.error : length();
  }

  int truncate(int64_t bytes) override {
    const Call call(*state_, fmt::format("truncate {} {}", path_, bytes));
    return call.error != 0 ? call.error : grow_or_cut(bytes);
  }

  int reserve(int64_t bytes) override {
    const Call call(*state_, fmt::format("reserve {} {}", path_, bytes));
    if (call.error != 0) return call.error;
    if (!state_->options.can_reserve) return -EOPNOTSUPP;
    return grow_or_cut(std::max(bytes, length()));
  }

  int sync() override {
    const Call call(*state_, "sync " + path_);
    if (call.error == 0) file_->synced = file_->now;
    return call.error;
  }

 private:
  struct Pending {
    FileOperation operation;
    Trouble trouble;
  };

  Completion complete(const Call& call) {
    const auto chosen = pending_.begin() + static_cast<int64_t>(state_->random() % pending_.size());
    Pending next = *chosen;
    pending_.erase(chosen);
    if (call.trouble.what != Trouble::What::nothing) next.trouble = call.trouble;
    return {next.operation.tag, perform(next)};
  }

  int64_t length() const { return static_cast<int64_t>(file_->now.size()); }

  int grow_or_cut(int64_t bytes) {
    if (access_ == Access::read) return -EINVAL;
    if (bytes - length() > state_->free_bytes()) return -ENOSPC;
    file_->now.resize(static_cast<size_t>(bytes));
    return 0;
  }

  int64_t perform(const Pending& pending) {
    const auto& [operation, trouble] = pending;
    if (trouble.what == Trouble::What::error) return -trouble.error;
    const auto address = reinterpret_cast<intptr_t>(operation.memory);
    if ((operation.offset | operation.bytes | address) % alignment_ != 0) return -EINVAL;
    int64_t bytes = operation.bytes;
    if (trouble.what == Trouble::What::short_count && bytes > 1) bytes = 1 + static_cast<int64_t>(state_->random() % (bytes - 1));
    const int64_t moved = operation.direction == IoDirection::read ? read(operation, bytes) : write(operation, bytes);
    if (trouble.what == Trouble::What::bit_flip && moved > 0) flip_bit(operation, moved);
    return moved;
  }

  int64_t read(const FileOperation& operation, int64_t bytes) {
    const int64_t there = std::clamp<int64_t>(length() - operation.offset, 0, bytes);
    std::copy_n(file_->now.begin() + std::min(operation.offset, length()), there, operation.memory);
    return there;
  }

  int64_t write(const FileOperation& operation, int64_t bytes) {
    if (access_ == Access::read) return -EBADF;
    const int64_t end = std::min(operation.offset + bytes, length() + state_->free_bytes());
    if (end <= operation.offset) return bytes == 0 ? 0 : -ENOSPC;
    if (end > length()) file_->now.resize(static_cast<size_t>(end));
    std::copy_n(operation.memory, end - operation.offset, file_->now.begin() + operation.offset);
    return end - operation.offset;
  }

  void flip_bit(const FileOperation& operation, int64_t moved) {
    const auto place = static_cast<int64_t>(state_->random() % static_cast<uint64_t>(moved));
    const auto bit = static_cast<std::byte>(1U << (state_->random() % 8));
    (operation.direction == IoDirection::read ? operation.memory[place] : file_->now[operation.offset + place]) ^= bit;
  }

  const std::shared_ptr<FaultFs::State> state_;
  const std::shared_ptr<MemoryFile> file_;
  const std::string path_;
  const int64_t alignment_;
  const Access access_;
  size_t depth_;
  std::vector<Pending> pending_;
};

// Files that FaultFs::stripe joined. Each call counts as one of the file that it reaches.
class StripedFaultFile : public File {
 public:
  StripedFaultFile(std::vector<std::unique_ptr<File>> files, int64_t block, int depth)
      : files_(std::move(files)), block_(block), depth_(static_cast<size_t>(depth)) {}

  int64_t alignment() const override { return files_.front()->alignment(); }

  void submit(const FileOperation& operation) override {
    const auto count = static_cast<int64_t>(files_.size());
    const int64_t number = operation.offset / block_;
    if (files_.size() > 1 && operation.offset % block_ + operation.bytes > block_) throw std::logic_error("crosses a block");
    if (under_way_.size() == depth_) throw std::logic_error("more operations under way than the striped file was opened for");
    FileOperation part = operation;
    if (files_.size() > 1) part.offset = number / count * block_ + operation.offset % block_;
    const auto file = static_cast<size_t>(number % count);
    under_way_[operation.tag] = file;
    files_[file]->submit(part);
  }

  Completion wait() override {
    const Completion done = files_[under_way_.begin()->second]->wait();
    under_way_.erase(done.tag);
    return done;
  }

  std::optional<Completion> poll() override {
    for (const auto& file : files_) {
      const auto done = file->poll();
      if (done) under_way_.erase(done->tag);
      if (done) return done;
    }
    return std::nullopt;
  }

  int pin(std::span<std::byte> memory) override { return files_.front()->pin(memory); }
  int64_t size() override { return -EOPNOTSUPP; }
  int truncate(int64_t /*bytes*/) override { return -EOPNOTSUPP; }
  int reserve(int64_t /*bytes*/) override { return -EOPNOTSUPP; }
  int sync() override { return -EOPNOTSUPP; }

 private:
  const std::vector<std::unique_ptr<File>> files_;
  const int64_t block_;
  const size_t depth_;
  std::map<int, size_t> under_way_;  // the file of each tag
};

}  // namespace

std::unique_ptr<File> stripe_fault_files(std::vector<std::unique_ptr<File>> files, int64_t block, int depth) {
  for (const auto& file : files) dynamic_cast<FaultFile&>(*file).set_depth(depth);
  return std::make_unique<StripedFaultFile>(std::move(files), block, depth);
}

std::unique_ptr<File> make_fault_file(std::shared_ptr<FaultFs::State> state, std::shared_ptr<MemoryFile> file, std::string path,
                                      const OpenOptions& options) {
  return std::make_unique<FaultFile>(std::move(state), std::move(file), std::move(path), options);
}

}  // namespace zt::io
