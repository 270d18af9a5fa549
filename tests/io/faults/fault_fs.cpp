#include "fault_fs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "fault_state.h"

namespace zt::io {

namespace {

// A name in an existing folder. `error` is set if there is no such folder.
struct Place {
  std::shared_ptr<MemoryFolder> folder;  // null for the root itself
  std::string name;
  Node node;  // empty if there is no such name
  int error = 0;
};

Place find(const std::shared_ptr<MemoryFolder>& root, const std::string& path) {
  Place place{nullptr, "", {nullptr, root}};
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() || part == ".") continue;
    if (!place.node.folder) return {nullptr, "", {}, place.node.file ? -ENOTDIR : -ENOENT};
    const auto folder = place.node.folder;
    const auto found = folder->now.find(part);
    place = {folder, part, found == folder->now.end() ? Node{} : found->second};
  }
  return place;
}

bool is_there(const Node& node) {
  return node.file || node.folder;
}

EntryKind kind_from(const Node& node) {
  if (node.folder) return EntryKind::folder;
  return node.file ? EntryKind::file : EntryKind::missing;
}

// Returns -errno if `moved` must not replace `present` in a rename, else 0.
int replacing_error(const Node& moved, const Node& present) {
  if (!is_there(present)) return 0;
  if (moved.file) return present.file ? 0 : -EISDIR;
  if (present.file) return -ENOTDIR;
  return present.folder->now.empty() ? 0 : -ENOTEMPTY;
}

}  // namespace

Trouble FaultFs::State::count(const std::string& call) {
  if (is_dead) throw Death{};
  const auto number = static_cast<int64_t>(calls.size());
  calls.push_back(call);
  if (number < trouble.call || number >= trouble.call + trouble.calls) return {};
  if (trouble.what != Trouble::What::death) return trouble;
  is_dead = true;
  throw Death{};
}

int64_t FaultFs::State::free_bytes() const {
  int64_t used = bytes_in(*root);
  for (const auto& file : unnamed) {
    if (const auto open = file.lock()) used += static_cast<int64_t>(open->now.size());
  }
  return options.capacity - used;
}

FaultFs::FaultFs(const FaultFsOptions& options) : state_(std::make_shared<State>()) {
  state_->options = options;
}

void FaultFs::plan(const Trouble& trouble) {
  const std::lock_guard lock(*state_->mutex);
  state_->trouble = trouble;
  state_->calls.clear();
}

std::vector<std::string> FaultFs::calls() const {
  const std::lock_guard lock(*state_->mutex);
  return state_->calls;
}

std::unique_ptr<FaultFs> FaultFs::for_other_process() const {
  const std::lock_guard lock(*state_->mutex);
  auto state = std::make_shared<State>();
  state->mutex = state_->mutex;
  state->options = state_->options;
  state->root = state_->root;
  return std::unique_ptr<FaultFs>(new FaultFs(std::move(state)));
}

std::unique_ptr<FaultFs> FaultFs::after_crash(const Crash& crash) const {
  const std::lock_guard lock(*state_->mutex);
  auto next = std::make_unique<FaultFs>(state_->options);
  std::mt19937_64 random(crash.seed);
  next->state_->root = io::after_crash(*state_->root, crash, random);
  return next;
}

Opened FaultFs::open(const std::string& path, const OpenOptions& options) {
  const Call call(*state_, "open " + path);
  if (call.error != 0) return {nullptr, call.error};
  Place place = find(state_->root, path);
  if (place.error != 0) return {nullptr, place.error};
  if (place.node.folder) return {nullptr, -EISDIR};
  if (options.access == Access::scratch) return {make_fault_file(state_, std::make_shared<MemoryFile>(), path, options), 0};
  if (!place.node.file && options.access == Access::read) return {nullptr, -ENOENT};
  if (place.node.file && options.access == Access::create) return {nullptr, -EEXIST};
  if (place.node.file && options.access == Access::replace) {
    if (place.node.file->is_locked) return {nullptr, -EBUSY};
    place.node.file->now.clear();
  }
  if (!place.node.file) {
    place.node.file = std::make_shared<MemoryFile>();
    place.folder->change({{place.name, place.node}});
  }
  return {make_fault_file(state_, place.node.file, path, options), 0};
}

std::unique_ptr<File> FaultFs::stripe(std::vector<std::unique_ptr<File>> files, int64_t block, int depth) {
  return stripe_fault_files(std::move(files), block, depth);
}

int FaultFs::make_folder(const std::string& path) {
  const Call call(*state_, "make_folder " + path);
  if (call.error != 0) return call.error;
  const Place place = find(state_->root, path);
  if (place.error != 0) return place.error;
  if (is_there(place.node)) return -EEXIST;
  place.folder->change({{place.name, {nullptr, std::make_shared<MemoryFolder>()}}});
  return 0;
}

int FaultFs::rename(const std::string& from, const std::string& to) {
  const Call call(*state_, fmt::format("rename {} {}", from, to));
  if (call.error != 0) return call.error;
  const Place source = find(state_->root, from), target = find(state_->root, to);
  if (source.error != 0 || target.error != 0) return source.error != 0 ? source.error : target.error;
  if (!is_there(source.node)) return -ENOENT;
  if (source.folder != target.folder) return -EXDEV;
  const int refused = replacing_error(source.node, target.node);
  if (refused == 0 && source.name != target.name) source.folder->change({{source.name, {}}, {target.name, source.node}});
  return refused;
}

int FaultFs::remove(const std::string& path) {
  const Call call(*state_, "remove " + path);
  if (call.error != 0) return call.error;
  const Place place = find(state_->root, path);
  if (place.error != 0) return place.error;
  if (!is_there(place.node)) return -ENOENT;
  if (place.node.folder == state_->root) return -EBUSY;
  if (place.node.folder && !place.node.folder->now.empty()) return -ENOTEMPTY;
  place.folder->change({{place.name, {}}});
  return 0;
}

Listing FaultFs::list(const std::string& folder) {
  const Call call(*state_, "list " + folder);
  if (call.error != 0) return {{}, call.error};
  const Place place = find(state_->root, folder);
  if (!place.node.folder) return {{}, place.node.file ? -ENOTDIR : -ENOENT};
  Listing listing;
  for (const auto& [name, node] : place.node.folder->now) listing.entries.push_back({name, kind_from(node)});
  return listing;
}

EntryKind FaultFs::kind_of(const std::string& path) {
  const Call call(*state_, "kind_of " + path);
  return call.error != 0 ? EntryKind::other : kind_from(find(state_->root, path).node);
}

int FaultFs::sync_folder(const std::string& path) {
  const Call call(*state_, "sync_folder " + path);
  if (call.error != 0) return call.error;
  const Place place = find(state_->root, path);
  if (!place.node.folder) return place.node.file ? -ENOTDIR : -ENOENT;
  place.node.folder->sync();
  return 0;
}

int64_t FaultFs::free_bytes(const std::string& folder) {
  const Call call(*state_, "free_bytes " + folder);
  return call.error != 0 ? call.error : state_->free_bytes();
}

}  // namespace zt::io
