// The companion of a token file: corpus.json describes how corpus.npy was made. Example:
//
// {"format": "ztoolkit tokens 1", "tokens": 9876543, "vocab": 4096,
//  "tokenizer": {"kind": "sentencepiece", "model": "corpus.model", "hash": "89abcdef01234567"},   (kind "bytes" has no model)
//  "source": {"name": "gcide.txt", "bytes": 29317154, "hash": "0123456789abcdef"}}
//
// Hashes are 64-bit FNV-1a of the bytes, as 16 hexadecimal digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zt::data {

struct Companion {
  int64_t tokens = 0;
  int64_t vocab = 0;
  std::string tokenizer;   // "bytes", "sentencepiece" or "tokenizer.json"
  std::string model;       // the model's file, in the same folder; empty for bytes
  std::string model_hash;  // content_hash of that file; empty for bytes
  std::string source;      // name of the text, without its folder
  int64_t source_bytes = 0;
  std::string source_hash;
};

// Returns the path of a companion file, for example corpus.json of corpus.npy: `extension` replaces ".npy". Throws Misuse if
// `path` does not end in .npy.
std::string beside(const std::string& path, const std::string& extension);
std::string content_hash(std::string_view bytes);

// Computes content_hash of bytes that arrive in parts.
class ContentHash {
 public:
  void add(std::string_view bytes);
  // Returns the content_hash of all bytes added so far.
  std::string text() const;

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

std::string companion_text(const Companion& companion);
// Returns the companion of the token file at `path`, or nullopt if there is none. Throws Fault if it cannot be read or parsed.
std::optional<Companion> read_companion(const std::string& path);

}  // namespace zt::data
