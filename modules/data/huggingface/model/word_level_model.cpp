#include "huggingface/model/word_level_model.h"

#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

class WordLevelModel : public SubwordModel {
 public:
  WordLevelModel(TokenTable tokens, int32_t unknown) : SubwordModel(std::move(tokens)), unknown_(unknown) {}

  void tokenize(std::string_view word, std::vector<int32_t>& out) const override {
    out.push_back(tokens().id_of(word).value_or(unknown_));
  }
  bool is_slow() const override { return false; }

 private:
  int32_t unknown_;
};

}  // namespace

std::unique_ptr<SubwordModel> parse_word_level_model(const JsonFields& fields) {
  fields.allow_only({"type", "vocab", "unk_token"});
  TokenTable tokens(fields.object("vocab"), fields.place_of("vocab"));
  const std::string unknown = fields.text("unk_token");
  const auto id = tokens.id_of(unknown);
  if (!id) fault("{}: '{}' is not in the vocabulary", fields.place_of("unk_token"), unknown);
  return std::make_unique<WordLevelModel>(std::move(tokens), *id);
}

}  // namespace zt::data::huggingface
