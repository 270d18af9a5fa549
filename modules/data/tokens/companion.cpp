#include "companion.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "zt/base/error.h"
#include "zt/io/input_file.h"
#include "zt/random/rng.h"

namespace zt::data {

namespace {

constexpr const char* kFormat = "ztoolkit tokens 1";

// Throws Fault unless the model is a plain file name: a companion from elsewhere must not open any file of this machine.
void check_model_name(const std::string& model) {
  const bool is_plain =
      model.find('/') == std::string::npos && model.find('\0') == std::string::npos && model != "." && model != "..";
  if (is_plain) return;
  fault("its model is '{}', which must be the plain name of a file in the same folder, without '/' and not '..'", model);
}

DocumentsNote note_from_json(const nlohmann::json& json) {
  DocumentsNote note{.kind = json.at("kind"),
                     .mask_of = json.at("mask_of"),
                     .template_hash = {},
                     .records = json.at("records"),
                     .stop_tokens = json.at("stop_tokens")};
  if (const auto source = json.find("template"); source != json.end() && !source->is_null())
    note.template_hash = source->at("hash");
  return note;
}

void add_note(const DocumentsNote& note, nlohmann::ordered_json& json) {
  json["kind"] = note.kind;
  json["mask_of"] = note.mask_of;
  json["template"] = nullptr;
  if (!note.template_hash.empty()) json["template"] = {{"hash", note.template_hash}};
  json["records"] = note.records;
  json["stop_tokens"] = note.stop_tokens;
}

Companion from_json(const nlohmann::json& json) {
  if (const auto format = json.at("format").get<std::string>(); format != kFormat) {
    fault("its format is '{}', which is not '{}'", format, kFormat);
  }
  const auto& tokenizer = json.at("tokenizer");
  const auto& source = json.at("source");
  Companion companion{.tokens = json.at("tokens"),
                      .vocab = json.at("vocab"),
                      .tokenizer = tokenizer.at("kind"),
                      .model = tokenizer.value("model", ""),
                      .model_hash = tokenizer.value("hash", ""),
                      .source = source.at("name"),
                      .source_bytes = source.at("bytes"),
                      .source_hash = source.at("hash")};
  if (json.contains("kind")) companion.documents = note_from_json(json);
  check_model_name(companion.model);
  if (companion.tokenizer == "sentencepiece" && companion.model.empty()) fault("it does not name the model of its tokenizer");
  if (companion.vocab < 1) fault("its vocab is {}, which must be at least 1", companion.vocab);
  return companion;
}

}  // namespace

std::string beside(const std::string& path, const std::string& extension) {
  constexpr std::string_view kExtension = ".npy";
  if (!path.ends_with(kExtension)) misuse("the token file '{}' must have a name that ends in .npy", path);
  return path.substr(0, path.size() - kExtension.size()) + extension;
}

std::string content_hash(std::string_view bytes) {
  ContentHash hash;
  hash.add(bytes);
  return hash.text();
}

// 64-bit FNV-1a, the same as stable_hash.
void ContentHash::add(std::string_view bytes) {
  for (const char c : bytes) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
}

std::string ContentHash::text() const {
  return fmt::format("{:016x}", state_);
}

std::string companion_text(const Companion& companion) {
  nlohmann::ordered_json tokenizer{{"kind", companion.tokenizer}};
  if (!companion.model.empty()) {
    tokenizer["model"] = companion.model;
    tokenizer["hash"] = companion.model_hash;
  }
  nlohmann::ordered_json json{
      {"format", kFormat},
      {"tokens", companion.tokens},
      {"vocab", companion.vocab},
      {"tokenizer", tokenizer},
      {"source", {{"name", companion.source}, {"bytes", companion.source_bytes}, {"hash", companion.source_hash}}}};
  if (companion.documents) add_note(*companion.documents, json);
  return json.dump(2) + "\n";
}

std::optional<Companion> read_companion(const std::string& path) {
  if (!path.ends_with(".npy")) return std::nullopt;
  const std::string name = beside(path, ".json");
  if (!std::filesystem::exists(name)) return std::nullopt;
  const std::string text = io::read_file(name);
  try {
    return from_json(nlohmann::json::parse(text));
  } catch (const std::exception& error) {
    fault("cannot read '{}', which describes '{}': {}. Make both again with ztoolkit tokenize", name, path, error.what());
  }
}

}  // namespace zt::data
