#include "tokenize.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "outputs.h"
#include "text_reader.h"
#include "tokens/companion.h"
#include "tokens/npy.h"
#include "zt/base/error.h"
#include "zt/io/atomic_file.h"

namespace zt::data {

namespace {

constexpr int64_t kChunk = 1 << 16;  // most bytes encoded at once
constexpr std::array kTextOutputs{".npy", ".json", ".model", ".tokenizer.json"};

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Returns the size in bytes of the first character, or 0 if it is malformed. Overlong forms, surrogates and values above U+10FFFF
// are malformed, too.
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

void check_text(FileText& text, const Tokenizer& tokenizer) {
  if (tokenizer.model().empty()) return;  // the byte tokenizer takes any bytes
  for (int64_t at = 0; at < text.size();) {
    const std::string_view part = text.read(at, kChunk);
    const size_t bad = find_invalid_utf8(part);
    if (bad == std::string_view::npos) {
      at += static_cast<int64_t>(part.size());
      continue;
    }
    at += static_cast<int64_t>(bad);
    if (bad > 0) continue;  // the character may only be split by the end of the part: check it again at the start of the next one
    fault("'{}' is not UTF-8 (byte {} is 0x{:02x}): convert it, as in iconv -f latin1 -t utf-8, or use the byte tokenizer",
          text.path(), at, static_cast<unsigned char>(part[0]));
  }
}

// Returns how many bytes are encoded at once. The tokens of a tokenizer.json may depend on where a text is cut.
int64_t part_of(const FileText& text, const Tokenizer& tokenizer) {
  return model_extension(tokenizer) == ".model" ? kChunk : std::max<int64_t>(text.size(), 1);
}

// Writes the tokens of the whole text. Returns the content hash of the text.
std::string encode_all(FileText& text, const Tokenizer& tokenizer, NpyWriter& out, const Progress& progress) {
  ContentHash hash;
  const int64_t most = part_of(text, tokenizer);
  std::vector<int32_t> ids;
  for (int64_t at = 0; at < text.size();) {
    const std::string_view ahead = text.read(at, most + 1);  // one byte more, to see whether a character ends there
    const std::string_view chunk = ahead.substr(0, next_chunk(ahead, static_cast<size_t>(most)));
    ids.clear();
    tokenizer.encode(chunk, ids);
    out.append(ids);
    hash.add(chunk);
    at += static_cast<int64_t>(chunk.size());
    if (progress) progress(at, text.size());
  }
  return hash.text();
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
    // A space stays with the word after it, because sentencepiece also splits before spaces.
    if (found != std::string_view::npos && found > 0) return end == '\n' ? found + 1 : found;
  }
  size_t size = limit;
  while (size > 1 && is_continuation(text[size])) --size;
  return size;
}

void check_tokenize(const std::string& input, const std::string& output) {
  const FileText text(input);
  if (text.size() == 0) fault("'{}' is empty: there is nothing to tokenize", text.path());
  check_outputs(input, output, kTextOutputs);
}

int64_t tokenize_file(const std::string& input, const std::string& output, const Tokenizer& tokenizer, const Progress& progress) {
  check_tokenize(input, output);
  FileText text(input);
  check_text(text, tokenizer);
  NpyWriter tokens(output, token_type(tokenizer));
  const std::string hash = encode_all(text, tokenizer, tokens, progress);
  // Remove the old tokens first: old tokens must never lie beside a new model.
  std::filesystem::remove(output);
  write_companions(tokenizer, output,
                   {.tokens = tokens.count(),
                    .vocab = tokenizer.vocab(),
                    .tokenizer = tokenizer.kind(),
                    .model = {},
                    .model_hash = {},
                    .source = std::filesystem::path(text.path()).filename(),
                    .source_bytes = text.size(),
                    .source_hash = hash},
                   io::posix_files());
  tokens.commit();
  return tokens.count();
}

}  // namespace zt::data
