// Opens streams from the option tables of data.tokens and data.documents.
#pragma once

#include <memory>

#include "stream.h"
#include "zt/base/value.h"

namespace zt::data {

// The value of the option `allow` of streams and of restore: a state with another order of samples is taken, too.
constexpr const char* kOtherOrder = "other_order";

// Implements data.tokens{path, seq, batch, axis, seed, split, validation, shuffle, micro_batches, vocab, allow}: windows of one
// run of tokens.
std::shared_ptr<Stream> open_tokens(const Value& options);

// Implements data.documents: samples of variable length. Options: those of data.tokens, separator or offsets, pad, ignore_index,
// pack. The validation fraction counts documents.
std::shared_ptr<Stream> open_documents(const Value& options);

}  // namespace zt::data
