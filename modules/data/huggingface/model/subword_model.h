// The models of tokenizer.json: they split words into tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "huggingface/model/token_table.h"
#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Threads: any; several may tokenize at the same time.
class SubwordModel {
 public:
  explicit SubwordModel(TokenTable tokens) : tokens_(std::move(tokens)) {}
  virtual ~SubwordModel();
  // Appends the ids of a word, which is valid UTF-8 and not empty. Throws Fault if the model has no token for a part of it, where
  // tokenizers throws.
  virtual void tokenize(std::string_view word, std::vector<int32_t>& out) const = 0;
  // Returns whether the tokens of a word are worth remembering.
  virtual bool is_slow() const { return true; }
  // Returns the number of tokens, as tokenizers counts it: added tokens get ids from there on.
  virtual size_t count() const { return tokens_.size(); }
  const TokenTable& tokens() const { return tokens_; }

 private:
  TokenTable tokens_;
};

// Makes the model that the fields describe. Throws Fault if they are wrong or not supported.
std::unique_ptr<SubwordModel> parse_subword_model(const JsonFields& fields);

}  // namespace zt::data::huggingface
