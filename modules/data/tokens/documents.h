// Where the documents of a token file are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "token_file.h"

namespace zt::data {

// A document: tokens [begin, begin + size) of the file. Each of its tokens 1 .. size-1 is predicted from the tokens before it.
struct Document {
  int64_t begin = 0, size = 0;
};

// Returns the documents that end with a `separator`. The separator belongs to its document, so that a model learns to end.
// Tokens after the last separator are a document, too. Documents of fewer than two tokens have nothing to predict and are left
// out. Throws Misuse if `separator` is not below the vocabulary.
std::vector<Document> documents_by_separator(const TokenFile& file, int64_t separator);
// Returns the documents given by the offsets in the .npy file at `path`: document i has the tokens [offsets[i], offsets[i + 1]).
// Documents of fewer than two tokens are left out. Throws Fault unless the offsets ascend from 0 to the number of tokens.
std::vector<Document> documents_by_offsets(const TokenFile& file, const std::string& path);
// Returns all documents that the offsets give, also short and empty ones. Throws as documents_by_offsets.
std::vector<Document> all_documents(const TokenFile& file, const std::string& path);

}  // namespace zt::data
