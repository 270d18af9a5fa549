#include "huggingface/huggingface_tokenizer.h"

#include <algorithm>
#include <array>

#include "huggingface/token_pipeline.h"
#include "huggingface/token_template.h"
#include "huggingface/token_writer.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using huggingface::JsonFields;

class HuggingFaceTokenizer : public Tokenizer {
 public:
  HuggingFaceTokenizer(const JsonFields& fields, std::string_view text)
      : text_(text), pipeline_(fields), writer_(fields, pipeline_) {
    if (fields.has("post_processor")) template_ = huggingface::TokenTemplate(fields.fields("post_processor"), vocab());
  }

  const char* kind() const override { return "tokenizer.json"; }
  int64_t vocab() const override { return pipeline_.vocab(); }
  const std::string& model() const override { return text_; }

  void encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) const override {
    const size_t begin = out.size();
    pipeline_.encode(text, out, options);
    if (options.specials == Specials::added) template_.apply(out, begin);
  }

  std::string decode(std::span<const int64_t> ids) const override {
    for (const int64_t id : ids) check_id(id);
    return writer_.decode(ids);
  }
  std::string bytes_of(int64_t id) const override {
    check_id(id);
    return writer_.bytes_of(id);
  }
  std::optional<int64_t> id_of(std::string_view token) const override { return pipeline_.id_of(token); }
  std::string token_of(int64_t id) const override {
    check_id(id);
    return pipeline_.token_of(id);
  }
  bool is_special(int64_t id) const override {
    check_id(id);
    return pipeline_.is_special(id);
  }

 private:
  void check_id(int64_t id) const {
    if (id < 0 || id >= vocab()) misuse("cannot decode the id {}: this tokenizer has the ids 0 to {}", id, vocab() - 1);
  }

  std::string text_;
  huggingface::TokenPipeline pipeline_;
  huggingface::TokenWriter writer_;
  huggingface::TokenTemplate template_;
};

}  // namespace

std::shared_ptr<Tokenizer> parse_huggingface_tokenizer(std::string_view json, const std::string& name) {
  const huggingface::JsonValue document = huggingface::parse_json(json, name);
  const JsonFields fields(document, fmt::format("'{}'", name));
  fields.allow_only(
      {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"});
  if (fields.has("version") && fields.text("version") != "1.0") {
    fault("'{}': the version '{}' of tokenizer.json is not supported: it must be 1.0", name, fields.text("version"));
  }
  return std::make_shared<HuggingFaceTokenizer>(fields, json);
}

}  // namespace zt::data
