#include "huggingface/token_writer.h"

namespace zt::data::huggingface {

TokenWriter::TokenWriter(const JsonFields& fields, const TokenPipeline& pipeline) : pipeline_(pipeline) {
  if (!fields.has("decoder")) return;
  joins_by_space_ = false;
  decoders_ = parse_decoders(fields.fields("decoder"));
}

std::string TokenWriter::decode(std::span<const int64_t> ids) const {
  std::vector<std::string> tokens;
  for (const int64_t id : ids) {
    const std::string* token = pipeline_.decoded_token(id);
    if (token && !pipeline_.is_skipped(*token)) tokens.push_back(*token);
  }
  std::string text;
  for (const auto& decoder : decoders_) decoder->decode(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && joins_by_space_) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string TokenWriter::bytes_of(int64_t id) const {
  const std::string* token = pipeline_.decoded_token(id);
  if (!token || pipeline_.is_special(id)) return "";
  if (joins_by_space_) return " " + *token;
  std::string bytes = *token;
  bool is_fused = false;
  for (const auto& decoder : decoders_) {
    decoder->decode_one(bytes, is_fused);
    is_fused |= decoder->fuses();
  }
  return bytes;
}

}  // namespace zt::data::huggingface
