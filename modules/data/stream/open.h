// Streams from options tables: what data.tokens and data.documents take.
#pragma once

#include <memory>

#include "stream.h"
#include "zt/base/value.h"

namespace zt::data {

// data.tokens{path, seq, batch, axis, seed, split, validation, shuffle, micro_batches, vocab}: windows of one run of tokens.
std::shared_ptr<Stream> open_tokens(const Value& options);

// data.documents{... the same, and separator or offsets, pad, ignore_index, pack}: samples of variable length. The validation
// fraction counts documents.
std::shared_ptr<Stream> open_documents(const Value& options);

}  // namespace zt::data
