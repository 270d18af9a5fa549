#include "tokenizer.h"

#include <array>
#include <filesystem>

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
  void encode(std::string_view text, std::vector<int32_t>& out) const override {
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
  return sentencepiece_tokenizer(bytes, path);
}

}  // namespace

std::shared_ptr<Tokenizer> byte_tokenizer() {
  return std::make_shared<ByteTokenizer>();
}

std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (!path.ends_with(".npy")) return load_model(path, "");
  const auto companion = read_companion(path);
  if (!companion) {
    fault("'{}' does not say which tokenizer made it (there is no '{}' beside it): give the path of the model", path,
          beside(path, ".json"));
  }
  if (companion->tokenizer == "bytes") return byte_tokenizer();
  if (companion->tokenizer == "sentencepiece") {
    return load_model(std::filesystem::path(path).parent_path() / companion->model, companion->model_hash);
  }
  fault("'{}' names the unknown tokenizer '{}': it must be 'bytes' or 'sentencepiece'", beside(path, ".json"),
        companion->tokenizer);
}

}  // namespace zt::data
