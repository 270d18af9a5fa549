// The companion of a token file: corpus.json describes how corpus.npy was made. Example:
//
// {"format": "ztoolkit tokens 1", "tokens": 9876543, "vocab": 4096,
//  "tokenizer": {"kind": "sentencepiece", "model": "corpus.model", "hash": "89abcdef01234567"},   (kind "bytes" has no model)
//  "source": {"name": "gcide.txt", "bytes": 29317154, "hash": "0123456789abcdef"}}
//
// Hashes are 64-bit FNV-1a of the bytes, as 16 hexadecimal digits.
//
// The companion of documents with a mask (see DocumentWriter) also has
//
//  "kind": "conversations", "mask_of": "completion", "template": {"hash": "0011223344556677"}, "records": 1000, "stop_tokens":
//  [2]
//
// "template" is null if no chat template wrote the texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zt::data {

// Describes the documents of a file with a mask.
struct DocumentsNote {
  std::string kind;           // "conversations", "preferences" or "prompts"
  std::string mask_of;        // which tokens count: "all", "completion", "assistant", "last", or "none" of prompts
  std::string template_hash;  // content_hash of the chat template; empty: none
  int64_t records = 0;
  std::vector<int64_t> stop_tokens;  // that end an answer
};

struct Companion {
  int64_t tokens = 0;
  int64_t vocab = 0;
  std::string tokenizer;   // "bytes", "sentencepiece" or "tokenizer.json"
  std::string model;       // the model's file, in the same folder; empty for bytes
  std::string model_hash;  // content_hash of that file; empty for bytes
  std::string source;      // name of the text, without its folder
  int64_t source_bytes = 0;
  std::string source_hash;
  std::optional<DocumentsNote> documents = std::nullopt;  // nullopt: one text without a mask
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
