#include "tokenizer.h"

#include <array>
#include <filesystem>

#include "huggingface/huggingface_tokenizer.h"
#include "sentencepiece_tokenizer.h"
#include "tokens/companion.h"
#include "zt/base/error.h"
#include "zt/io/input_file.h"

namespace zt::data {

namespace {

class ByteTokenizer : public Tokenizer {
 public:
  const char* kind() const override { return "bytes"; }
  int64_t vocab() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions&) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const int64_t> ids) const override {
    std::string text;
    for (const int64_t id : ids) {
      if (id < 0 || id >= vocab()) misuse("cannot decode the id {}: byte tokens are 0 to 255", id);
      text += static_cast<char>(id);
    }
    return text;
  }
  std::string bytes_of(int64_t id) const override { return decode(std::array{id}); }
  std::optional<int64_t> id_of(std::string_view token) const override {
    return token.size() == 1 ? std::optional<int64_t>(static_cast<unsigned char>(token[0])) : std::nullopt;
  }
  std::string token_of(int64_t id) const override { return decode(std::array{id}); }
  bool is_special(int64_t id) const override { return decode(std::array{id}).empty(); }
  const std::string& model() const override { return kNoModel; }

 private:
  const std::string kNoModel;
};

std::shared_ptr<Tokenizer> load_model(const std::string& path, const std::string& recorded_hash) {
  const std::string bytes = io::read_file(path);
  if (!recorded_hash.empty() && content_hash(bytes) != recorded_hash) {
    fault(
        "'{}' is not the tokenizer model that the tokens beside it were made with (its hash is {}, recorded is {}): restore the "
        "right file, or make the tokens again with ztoolkit tokenize",
        path, content_hash(bytes), recorded_hash);
  }
  return parse_tokenizer(bytes, path);
}

// Returns the file of a tokenizer in a folder.
std::string file_in(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::string path = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(path)) return path;
  }
  fault("the folder '{}' has neither a tokenizer.json nor a tokenizer.model: give the path of a tokenizer's file", folder);
}

constexpr const char* kSentencepiece = "sentencepiece";
constexpr const char* kTokenizerJson = "tokenizer.json";

}  // namespace

std::shared_ptr<Tokenizer> parse_tokenizer(std::string_view content, const std::string& name) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && content[first] == '{';
  return is_json ? parse_huggingface_tokenizer(content, name) : sentencepiece_tokenizer(content, name);
}

std::string model_extension(const Tokenizer& tokenizer) {
  return std::string_view(tokenizer.kind()) == kTokenizerJson ? ".tokenizer.json" : ".model";
}

std::shared_ptr<Tokenizer> byte_tokenizer() {
  return std::make_shared<ByteTokenizer>();
}

std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (std::filesystem::is_directory(path)) return load_model(file_in(path), "");
  if (!path.ends_with(".npy")) return load_model(path, "");
  const auto companion = read_companion(path);
  if (!companion) {
    fault("'{}' does not say which tokenizer made it (there is no '{}' beside it): give the path of the model", path,
          beside(path, ".json"));
  }
  if (companion->tokenizer == "bytes") return byte_tokenizer();
  if (companion->tokenizer == kSentencepiece || companion->tokenizer == kTokenizerJson) {
    return load_model(std::filesystem::path(path).parent_path() / companion->model, companion->model_hash);
  }
  fault("'{}' names the unknown tokenizer '{}': it must be 'bytes', 'sentencepiece' or 'tokenizer.json'", beside(path, ".json"),
        companion->tokenizer);
}

}  // namespace zt::data
