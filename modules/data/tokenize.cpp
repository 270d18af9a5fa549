#include "tokenize.h"

#include <filesystem>

#include "companion.h"
#include "mapped_file.h"
#include "npy.h"
#include "zt/error.h"

namespace zt::data {

namespace {

constexpr size_t kChunk = 1 << 16;  // bytes encoded at a time

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Bytes of the character that starts here, 0 if it is malformed: overlong forms, surrogates and values past U+10FFFF are.
size_t character_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size < 2) return size;
  if (text.size() < size || !std::all_of(text.begin() + 1, text.begin() + static_cast<ptrdiff_t>(size), is_continuation))
    return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool is_bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
                      (first == 0xF4 && second > 0x8F);
  return is_bad ? 0 : size;
}

void check_text(const MappedFile& text, const Tokenizer& tokenizer) {
  if (text.bytes().empty()) fault("'{}' is empty: there is nothing to tokenize", text.path());
  if (tokenizer.model().empty()) return;  // bytes are bytes
  const size_t bad = find_invalid_utf8(text.bytes());
  if (bad == std::string_view::npos) return;
  fault("'{}' is not UTF-8 (byte {} is 0x{:02x}): convert it, as in iconv -f latin1 -t utf-8, or use the byte tokenizer",
        text.path(), bad, static_cast<unsigned char>(text.bytes()[bad]));
}

// Before hours of work: nothing that is not a token file's may be replaced, least of all the text itself.
void check_outputs(const std::string& input, const std::string& output) {
  for (const char* extension : {".npy", ".json", ".model"}) {
    const std::string path = beside(output, extension);
    std::error_code error;
    const auto kind = std::filesystem::status(path, error).type();
    if (kind == std::filesystem::file_type::not_found) continue;
    if (kind != std::filesystem::file_type::regular) {
      misuse("cannot write '{}': something that is not a regular file has that name. Give another output", path);
    }
    if (std::filesystem::equivalent(path, input, error)) {
      misuse("writing '{}' would replace the text '{}': give another output", path, input);
    }
  }
}

int64_t encode_all(const MappedFile& text, const Tokenizer& tokenizer, NpyWriter& out, const Progress& progress) {
  std::string_view rest = text.bytes();
  const auto total = static_cast<int64_t>(rest.size());
  std::vector<int32_t> ids;
  while (!rest.empty()) {
    const size_t size = next_chunk(rest, kChunk);
    ids.clear();
    tokenizer.encode(rest.substr(0, size), ids);
    out.append(ids);
    rest.remove_prefix(size);
    if (progress) progress(total - static_cast<int64_t>(rest.size()), total);
  }
  return out.count();
}

Companion describe(const MappedFile& text, const Tokenizer& tokenizer, const std::string& output, int64_t tokens) {
  Companion companion{.tokens = tokens,
                      .vocab = tokenizer.vocab(),
                      .tokenizer = tokenizer.kind(),
                      .model = {},
                      .model_hash = {},
                      .source = std::filesystem::path(text.path()).filename(),
                      .source_bytes = static_cast<int64_t>(text.bytes().size()),
                      .source_hash = content_hash(text.bytes())};
  if (!tokenizer.model().empty()) {
    companion.model = std::filesystem::path(beside(output, ".model")).filename();
    companion.model_hash = content_hash(tokenizer.model());
  }
  return companion;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = character_size(text.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return std::string_view::npos;
}

size_t next_chunk(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  for (const char end : {'\n', ' '}) {
    const size_t found = text.rfind(end, limit - 1);
    // A space goes with the word behind it: that is how sentencepiece cuts.
    if (found != std::string_view::npos && found > 0) return end == '\n' ? found + 1 : found;
  }
  size_t size = limit;
  while (size > 1 && is_continuation(text[size])) --size;
  return size;
}

int64_t tokenize_file(const std::string& input, const std::string& output, const Tokenizer& tokenizer, const Progress& progress) {
  const std::string companion_path = beside(output, ".json");
  const MappedFile text(input);
  check_text(text, tokenizer);
  check_outputs(input, output);
  NpyWriter tokens(output, tokenizer.vocab() <= 65536 ? NpyType::u16 : NpyType::u32);
  const int64_t count = encode_all(text, tokenizer, tokens, progress);
  // Never old tokens beside a new model.
  std::filesystem::remove(output);
  if (!tokenizer.model().empty()) write_file(beside(output, ".model"), tokenizer.model());
  write_file(companion_path, companion_text(describe(text, tokenizer, output, count)));
  tokens.commit();
  return count;
}

}  // namespace zt::data
