#include "safetensors_shards.h"

#include <nlohmann/json.hpp>

#include "safetensors_json.h"
#include "zt/base/error.h"

namespace zt::ckpt::safetensors {

using nlohmann::json;

namespace {

// True for the name of a safetensors file in the same folder. Refuses paths that lead out of the folder.
bool is_file_name(const std::string& name) {
  const bool is_plain = name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  return is_plain && !name.starts_with('.') && name.ends_with(".safetensors");
}

int64_t read_total(const json& index, const std::string& path) {
  if (!index.contains("metadata")) return 0;
  const json& metadata = index["metadata"];
  if (!metadata.is_object()) damaged(path, "\"metadata\" is no JSON object");
  if (!metadata.contains("total_size")) return 0;
  const json& total = metadata["total_size"];
  if (!total.is_number_unsigned() || total.get<uint64_t>() > INT64_MAX) damaged(path, "\"total_size\" is no number of bytes");
  return total.get<int64_t>();
}

}  // namespace

FileIndex parse_index(std::string_view text, const std::string& path) {
  const json root = parse_json(text, path);
  if (!root.contains("weight_map")) damaged(path, "it has no \"weight_map\"");
  FileIndex index{read_texts(root["weight_map"], "weight_map", path), read_total(root, path)};
  for (const auto& [name, file] : index.files) {
    if (!is_file_name(file))
      damaged(path, fmt::format("tensor {} would be in {}, which is no safetensors file beside it", shown(name), shown(file)));
  }
  return index;
}

std::string make_index(const FileIndex& index) {
  try {
    return json{{"metadata", {{"total_size", index.total_bytes}}}, {"weight_map", index.files}}.dump(2) + "\n";
  } catch (const json::type_error& error) {
    misuse("safetensors: names must be UTF-8 ({})", shown(error.what()));
  }
}

std::vector<std::vector<size_t>> split(std::span<const int64_t> bytes, int64_t most) {
  if (most <= 0) misuse("safetensors: files of at most {} bytes can hold nothing: give a size above 0", most);
  std::vector<std::vector<size_t>> files;
  int64_t room = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (files.empty() || bytes[i] > room) {
      files.emplace_back();
      room = most;
    }
    files.back().push_back(i);
    room -= std::min(room, bytes[i]);
  }
  return files;
}

std::string file_name(const std::string& stem, size_t file, size_t files) {
  return files == 1 ? stem + ".safetensors" : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, file + 1, files);
}

}  // namespace zt::ckpt::safetensors
