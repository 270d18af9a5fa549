#include "store.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <ranges>

#include "zt/base/error.h"
#include "zt/io/atomic_file.h"
#include "zt/io/io_errors.h"
#include "zt/io/small_files.h"
#include "zt/process/log.h"
#include "zt/process/world.h"

namespace zt::ckpt {

namespace {

constexpr const char* kLatest = "latest";
constexpr int64_t kLongestLatest = 4096;  // bytes

// The parts of a folder's name: the step of "step_00000200", and the rest from a dot on.
struct Name {
  int64_t step;
  std::string rest;
};

std::optional<Name> parse(const std::string& name) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  Name parsed{step, std::string(stop, end)};
  if (error != std::errc() || step < 0 || (stop != end && *stop != '.') || name != folder_name(step) + parsed.rest)
    return std::nullopt;
  return parsed;
}

// Returns a name such as "step_00000300.partial-4f1c" that does not exist yet.
std::string new_name(io::FileSystem& files, const std::string& root, int64_t step, const char* what) {
  for (;;) {
    std::string name = fmt::format("{}.{}-{:04x}", folder_name(step), what, std::random_device()() & 0xFFFFU);
    if (files.kind_of(root + "/" + name) == io::EntryKind::missing) return name;
  }
}

io::Listing list(io::FileSystem& files, const std::string& folder) {
  io::Listing listing;
  io::retry([&] { return (listing = files.list(folder)).error; });
  if (listing.error != 0 && listing.error != -ENOENT) io::io_fault(files, "read the folder", folder, listing.error);
  return listing;
}

void rename(io::FileSystem& files, const std::string& root, const std::string& from, const std::string& to) {
  io::retry_or_fault(files, "rename", root + "/" + from, [&] { return files.rename(root + "/" + from, root + "/" + to); });
}

// Syncs the names of the folder and of those above it, so that they outlast a crash. Stops at the first folder that this process
// may not sync. Needed because another program may have made the folders.
void sync_names(io::FileSystem& files, const std::string& folder) {
  const std::string parent = io::folder_of(folder);
  if (parent == folder) return;
  const int64_t result = io::retry([&] { return files.sync_folder(parent); });
  if (result == -EACCES || result == -EPERM || result == -EROFS || result == -EINVAL) return;
  if (result < 0) io::io_fault(files, "sync the folder", parent, result);
  sync_names(files, parent);
}

// Removes a checkpoint's folder. Renames it first, so that a folder removed in part does not count as a checkpoint.
void retire(io::FileSystem& files, const std::string& root, int64_t step, const std::string& name) {
  const std::string partial = new_name(files, root, step, "partial");
  rename(files, root, name, partial);
  io::sync_folder_or_fault(files, root);
  remove_tree(files, root + "/" + partial);
}

void remove_if_there(io::FileSystem& files, const std::string& path) {
  const int64_t result = io::retry([&] { return files.remove(path); });
  if (result != 0 && result != -ENOENT) io::io_fault(files, "remove", path, result);
}

void warn_of_latest(const std::string& path, const std::string& newest, const std::string& problem) {
  log(LogLevel::warn, World(),
      fmt::format("'{}' cannot be used, so the newest complete checkpoint is taken, {}: {}", path, newest, problem));
}

// Returns the text without what editors and other systems add around it: a byte order mark, blanks, ends of lines.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf", kBlanks = " \t\r\n";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Returns the text for a message: at most 60 bytes, others than printable ones of ASCII as \xNN.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string words;
  for (const char each : text.substr(0, kMost)) {
    if (each >= ' ' && each <= '~') words += each;
    else words += fmt::format("\\x{:02x}", static_cast<unsigned char>(each));
  }
  return text.size() > kMost ? words + "..." : words;
}

// Returns the step that the file `latest` names; nullopt, after a warning, if it names none.
std::optional<int64_t> read_latest(io::FileSystem& files, const std::string& path, const std::string& newest) {
  try {
    const auto bytes = io::read_small(files, path, kLongestLatest);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const auto parsed = parse(std::string(trimmed(text)))) return parsed->step;
    warn_of_latest(path, newest, fmt::format("it holds '{}', which is no checkpoint's name", shown(text)));
  } catch (const Fault& error) {
    warn_of_latest(path, newest, error.what());
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> folders_in(io::FileSystem& files, const std::string& folder) {
  std::vector<std::string> names;
  for (const io::Entry& entry : list(files, folder).entries) {
    if (entry.kind == io::EntryKind::folder) names.push_back(entry.name);
  }
  std::ranges::sort(names);
  return names;
}

int64_t folder_bytes(io::FileSystem& files, const std::string& folder) {
  int64_t bytes = 0;
  for (const io::Entry& entry : list(files, folder).entries) {
    const std::string path = folder + "/" + entry.name;
    if (entry.kind == io::EntryKind::folder) bytes += folder_bytes(files, path);
    if (entry.kind == io::EntryKind::file) bytes += io::file_bytes(files, path);
  }
  return bytes;
}

std::string folder_name(int64_t step) {
  return fmt::format("step_{:08}", step);
}

std::map<int64_t, std::string> complete(io::FileSystem& files, const std::string& root) {
  std::map<int64_t, std::string> found;
  for (const std::string& name : folders_in(files, root)) {
    const auto parsed = parse(name);
    if (!parsed) continue;
    if (parsed->rest.empty()) found[parsed->step] = name;
    else if (parsed->rest.starts_with(".old-")) found.emplace(parsed->step, name);
  }
  return found;
}

std::optional<std::string> latest(io::FileSystem& files, const std::string& root) {
  const auto all = complete(files, root);
  if (all.empty()) return std::nullopt;
  const std::string path = root + "/" + kLatest;
  const std::string& newest = all.rbegin()->second;
  if (files.kind_of(path) != io::EntryKind::file) return newest;
  const auto named = read_latest(files, path, newest);
  return named && all.contains(*named) ? all.at(*named) : newest;
}

std::optional<std::string> find_checkpoint(io::FileSystem& files, const std::string& path) {
  if (files.kind_of(path + "/" + kMaster) == io::EntryKind::file) return path;
  const auto name = latest(files, path);
  return name ? std::optional(path + "/" + *name) : std::nullopt;
}

void make_folders(io::FileSystem& files, const std::string& path) {
  if (files.kind_of(path) == io::EntryKind::folder) return;
  const std::string parent = io::folder_of(path);
  if (parent != path) make_folders(files, parent);
  const int64_t result = io::retry([&] { return files.make_folder(path); });
  if (result != 0 && result != -EEXIST) io::io_fault(files, "make the folder", path, result);
  io::sync_folder_or_fault(files, parent);
}

std::string begin(io::FileSystem& files, const std::string& root, int64_t step) {
  make_folders(files, root);
  sync_names(files, root);
  const std::string partial = new_name(files, root, step, "partial");
  try {
    make_folders(files, root + "/" + partial + "/shards");
  } catch (const Error&) {
    discard(files, root + "/" + partial);
    throw;
  }
  return partial;
}

std::string commit(io::FileSystem& files, const std::string& root, const std::string& partial, int64_t step) {
  for (const char* inner : {"/shards", ""}) io::sync_folder_or_fault(files, root + "/" + partial + inner);
  const std::string name = folder_name(step);
  const int64_t result = io::retry([&] { return files.rename(root + "/" + partial, root + "/" + name); });
  if (result == -ENOTEMPTY || result == -EEXIST) {
    rename(files, root, name, new_name(files, root, step, "old"));
    rename(files, root, partial, name);
  } else if (result < 0) {
    io::io_fault(files, "rename", root + "/" + partial, result);
  }
  io::sync_folder_or_fault(files, root);
  const std::string line = name + "\n";
  io::replace_file(files, root + "/" + kLatest, std::as_bytes(std::span(line)));
  return root + "/" + name;
}

std::vector<int64_t> retain(io::FileSystem& files, const std::string& root, const Retention& retention) {
  for (const std::string& name : partial(files, root)) {
    const auto parsed = parse(name);
    if (parsed->rest.starts_with(".old-")) retire(files, root, parsed->step, name);
  }
  if (retention.keep <= 0) return {};
  const auto all = complete(files, root);
  const auto stays = latest(files, root);
  std::vector<int64_t> removed;
  int64_t newer = 0;
  for (const auto& [step, name] : all | std::views::reverse) {
    const bool is_kept =
        newer++ < retention.keep || name == stays || (retention.keep_every > 0 && step % retention.keep_every == 0);
    if (is_kept) continue;
    retire(files, root, step, name);
    removed.push_back(step);
  }
  return removed;
}

std::vector<std::string> partial(io::FileSystem& files, const std::string& root) {
  const auto all = complete(files, root);
  std::vector<std::string> names;
  for (const std::string& name : folders_in(files, root)) {
    const auto parsed = parse(name);
    const bool is_ours = parsed && (parsed->rest.starts_with(".partial-") || parsed->rest.starts_with(".old-"));
    if (is_ours && (!all.contains(parsed->step) || all.at(parsed->step) != name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> collect_garbage(io::FileSystem& files, const std::string& root) {
  const auto names = partial(files, root);
  for (const std::string& name : names) remove_tree(files, root + "/" + name);
  return names;
}

void remove_all(io::FileSystem& files, const std::string& root) {
  remove_if_there(files, root + "/" + kLatest);
  collect_garbage(files, root);
  for (const auto& [step, name] : complete(files, root)) retire(files, root, step, name);
}

void with_disk_advice(const std::function<void()>& write) {
  try {
    write();
  } catch (const io::DiskFull& error) {
    fault("{}. Old checkpoints can be removed, and so can the remains of unfinished saves (ztoolkit ckpt gc)", error.what());
  }
}

void remove_tree(io::FileSystem& files, const std::string& path) {
  for (const io::Entry& entry : list(files, path).entries) {
    const std::string inner = path + "/" + entry.name;
    if (entry.kind == io::EntryKind::folder) remove_tree(files, inner);
    else remove_if_there(files, inner);
  }
  remove_if_there(files, path);
}

void discard(io::FileSystem& files, const std::string& path) noexcept {
  try {
    remove_tree(files, path);
  } catch (const Error&) {  // NOLINT: the caller reports its earlier error
  }
}

}  // namespace zt::ckpt
