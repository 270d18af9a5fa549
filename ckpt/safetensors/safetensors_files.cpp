#include "safetensors_files.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "folder/store.h"
#include "safetensors_shards.h"
#include "zt/base/error.h"
#include "zt/io/atomic_file.h"
#include "zt/io/block_io.h"
#include "zt/io/input_file.h"
#include "zt/io/io_errors.h"
#include "zt/io/small_files.h"

namespace zt::ckpt::safetensors {

namespace {

constexpr std::string_view kFileEnding = ".safetensors", kIndexEnding = ".safetensors.index.json";
constexpr int64_t kLargestIndex = int64_t{100} << 20;  // bytes

// Returns the model's file or index in a folder.
std::string file_in(io::FileSystem& files, const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string_view ending : {kIndexEnding, kFileEnding}) {
    const std::string usual = fmt::format("{}/model{}", folder, ending);
    if (files.kind_of(usual) == io::EntryKind::file) return usual;
  }
  for (const io::Entry& entry : files.list(folder).entries) {
    if (entry.name.ends_with(kFileEnding) || entry.name.ends_with(kIndexEnding)) found.push_back(folder + "/" + entry.name);
  }
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    const bool is_pickle = files.kind_of(folder + "/pytorch_model.bin") == io::EntryKind::file ||
                           files.kind_of(folder + "/pytorch_model.bin.index.json") == io::EntryKind::file;
    fault("'{}' holds no safetensors file{}", folder,
          is_pickle
              ? ", and pytorch_model.bin is not read: load the model in Python and write it by model.save_pretrained(folder)"
              : ": give the folder or the path of one");
  }
  fault("'{}' holds {} safetensors files or indices and none named 'model': give the path of one of them", folder, found.size());
}

// The bytes of one file: its header and its tensors. Must be read in ascending order.
class Data {
 public:
  Data(FileHeader header, const Provider& provider)
      : provider_(provider), head_(make_header(header)), tensors_(std::move(header.tensors)) {}

  // Calls the provider for tensors that are left after writing: tensors without elements have no bytes, so read() skips them.
  void finish() {
    while (next_ < tensors_.size()) load(tensors_[next_++]);
  }
  int64_t bytes() const { return tensors_.empty() ? static_cast<int64_t>(head_.size()) : tensors_.back().end; }
  std::span<const std::byte> read(int64_t offset, std::span<std::byte> to) {
    for (auto left = to; !left.empty();) {
      const int64_t at = offset + static_cast<int64_t>(to.size() - left.size());
      const auto [source, begin] = part_at(at);
      const auto rest = source.subspan(at - begin);
      const size_t count = std::min(left.size(), rest.size());
      std::memcpy(left.data(), rest.data(), count);
      left = left.subspan(count);
    }
    return to;
  }

 private:
  std::pair<std::span<const std::byte>, int64_t> part_at(int64_t at) {
    if (at < static_cast<int64_t>(head_.size())) return {head_, 0};
    while (next_ == 0 || at >= tensors_[next_ - 1].end) load(tensors_[next_++]);
    return {{static_cast<const std::byte*>(values_.const_data_ptr()), values_.nbytes()}, tensors_[next_ - 1].begin};
  }
  void load(const Tensor& tensor) {
    values_ = at::Tensor();
    values_ = provider_(tensor.name).cpu().contiguous();
    if (values_.scalar_type() != tensor.dtype || values_.sizes() != tensor.shape)
      misuse("'{}' was announced as {} [{}] and is {} {}", tensor.name, c10::toString(tensor.dtype),
             fmt::join(tensor.shape, ", "), c10::toString(values_.scalar_type()), fmt::join(values_.sizes(), ", "));
  }

  const Provider& provider_;
  std::vector<std::byte> head_;
  std::vector<Tensor> tensors_;
  at::Tensor values_;
  size_t next_ = 0;
};

// Returns the tensors of each file.
std::vector<std::vector<Tensor>> groups_of(const std::string& path, const std::vector<Tensor>& tensors, int64_t most) {
  if (path.ends_with(kFileEnding)) return {tensors};
  std::vector<int64_t> bytes;
  for (const Tensor& tensor : tensors) bytes.push_back(tensor_bytes(tensor));
  std::vector<std::vector<Tensor>> groups;
  for (const auto& places : split(bytes, most)) {
    auto& group = groups.emplace_back();
    for (const size_t place : places) group.push_back(tensors[place]);
  }
  return groups;
}

std::string partial_name(const std::string& path) {
  return path + ".partial";
}

void write_partial(io::FileSystem& files, const std::string& path, const std::vector<Tensor>& tensors, const Provider& provider) {
  io::retry([&] { return files.remove(partial_name(path)); });
  Data data({tensors, {{"format", "pt"}}}, provider);
  io::write_file(files, partial_name(path), data.bytes(),
                 [&](int64_t offset, std::span<std::byte> scratch) { return data.read(offset, scratch); });
  data.finish();
}

// Returns the files of a model that is in `folder` already, its index first.
std::vector<std::string> model_files(io::FileSystem& files, const std::string& folder) {
  std::vector<std::string> found;
  for (const io::Entry& entry : files.list(folder).entries) {
    const bool is_index = entry.name == "model" + std::string(kIndexEnding);
    const bool is_part = entry.name == "model" + std::string(kFileEnding) ||
                         (entry.name.starts_with("model-") && entry.name.ends_with(kFileEnding));
    if (is_index) found.insert(found.begin(), folder + "/" + entry.name);
    else if (is_part) found.push_back(folder + "/" + entry.name);
  }
  return found;
}

// Writes groups[i] to paths[i]. After all files are complete, calls `before` and then gives them their names.
void write_all(io::FileSystem& files, const std::vector<std::string>& paths, const std::vector<std::vector<Tensor>>& groups,
               const Provider& provider, const std::function<void()>& before) {
  try {
    for (size_t i = 0; i < paths.size(); ++i) write_partial(files, paths[i], groups[i], provider);
    before();
    for (const auto& path : paths)
      io::retry_or_fault(files, "name", path, [&] { return files.rename(partial_name(path), path); });
  } catch (const std::exception&) {
    for (const auto& path : paths) files.remove(partial_name(path));  // ignores errors of the removal: the first error counts
    throw;
  }
  io::sync_folder_or_fault(files, io::folder_of(paths.front()));
}

[[noreturn]] void refuse_existing(const std::string& path) {
  fault("'{}' is there already: choose another name, or replace it (overwrite)", path);
}

}  // namespace

ModelFiles::ModelFiles(io::FileSystem& files, const std::string& path) : files_(files) {
  const std::string file = files.kind_of(path) == io::EntryKind::folder ? file_in(files, path) : path;
  if (file.ends_with(kIndexEnding)) add_index(file);
  else add_file(file);
}

void ModelFiles::add_file(const std::string& path) {
  const io::InputFile file(path, files_);
  const auto prefix = file.first_bytes(std::min(file.size(), kPrefix));
  const auto head = file.first_bytes(header_bytes(prefix, file.size(), path));
  for (Tensor& tensor : parse_header(head, file.size(), path).tensors) {
    const auto [entry, is_new] = paths_.emplace(tensor.name, path);
    if (!is_new) fault("'{}' and '{}' both have a tensor '{}'", entry->second, path, tensor.name);
    tensors_.emplace(tensor.name, std::move(tensor));
  }
}

void ModelFiles::add_index(const std::string& path) {
  const auto bytes = io::read_small(files_, path, kLargestIndex);
  const FileIndex index = parse_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.files) names.insert(file);
  for (const std::string& file : names) add_file(io::folder_of(path) + "/" + file);
  for (const auto& [tensor, file] : index.files) {
    const auto found = paths_.find(tensor);
    if (found == paths_.end() || found->second != io::folder_of(path) + "/" + file)
      fault("'{}' says that '{}' has a tensor '{}', but it does not: look for the files that belong together", path, file,
            tensor);
  }
}

at::Tensor ModelFiles::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) misuse("there is no tensor '{}' in these safetensors files", name);
  const Tensor& tensor = found->second;
  const at::Tensor whole = at::empty(tensor.shape, tensor.dtype);
  std::vector<io::FileRange> ranges;
  for (int64_t at = tensor.begin; at < tensor.end; at += io::kBlock)
    ranges.push_back({at, std::min(io::kBlock, tensor.end - at)});
  auto* to = static_cast<std::byte*>(whole.mutable_data_ptr());
  io::read_ranges(files_, paths_.at(name), ranges, [&](size_t i, std::span<const std::byte> data) {
    std::memcpy(to + ranges[i].offset - tensor.begin, data.data(), data.size());
  });
  if (tensor.dtype == at::kBool) whole.copy_(whole.view(at::kByte).ne(0));  // the file may have any number in a boolean's byte
  return whole;
}

std::vector<std::string> write_order(const std::string& path, const std::vector<Tensor>& tensors, int64_t most) {
  std::vector<std::string> names;
  for (const auto& group : groups_of(path, tensors, most)) {
    FileHeader header{group, {}};
    make_header(header);
    for (const Tensor& tensor : header.tensors) names.push_back(tensor.name);
  }
  return names;
}

std::vector<std::string> write_model(io::FileSystem& files, const std::string& path, const std::vector<Tensor>& tensors,
                                     int64_t most, const Provider& provider, Existing existing) {
  const auto groups = groups_of(path, tensors, most);
  if (path.ends_with(kFileEnding)) {
    const io::EntryKind kind = files.kind_of(path);
    if (kind != io::EntryKind::missing && (existing == Existing::refuse || kind != io::EntryKind::file)) refuse_existing(path);
    make_folders(files, io::folder_of(path));
    write_all(files, {path}, groups, provider, [] {});
    return {path};
  }
  make_folders(files, path);
  const auto earlier = model_files(files, path);
  if (!earlier.empty() && existing == Existing::refuse) refuse_existing(earlier.front());
  std::vector<std::string> written;
  FileIndex index;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string name = file_name("model", i, groups.size());
    for (const Tensor& tensor : groups[i]) {
      index.files[tensor.name] = name;
      index.total_bytes += tensor_bytes(tensor);
    }
    written.push_back(path + "/" + name);
  }
  write_all(files, written, groups, provider, [&] {
    for (const auto& file : earlier) io::retry_or_fault(files, "remove", file, [&] { return files.remove(file); });
  });
  if (groups.size() > 1) {
    written.push_back(fmt::format("{}/model{}", path, kIndexEnding));
    const std::string text = make_index(index);
    io::replace_file(files, written.back(), std::as_bytes(std::span(text)));
  }
  return written;
}

}  // namespace zt::ckpt::safetensors
