// Opens streams from the option tables of the functions of zt.data.
#pragma once

#include <memory>

#include "blend.h"
#include "prompt_stream.h"
#include "stream.h"
#include "zt/base/value.h"
#include "zt/process/world.h"

namespace zt::data {

// Implements data.tokens{path, seq, batch, axis, seed, split, validation, shuffle, micro_batches, vocab, allow}: windows of one
// run of tokens.
std::shared_ptr<Stream> open_tokens(const Value& options);

// Implements data.documents: samples of variable length. Options: those of data.tokens, separator or offsets, pad, ignore_index,
// pack, phase. The validation fraction counts documents.
std::shared_ptr<Stream> open_documents(const Value& options);

// Implement data.conversations and data.preferences: the records of `ztoolkit tokenize --chat`, with their masks. Options: those
// of data.tokens without vocab, and pack, padding, too_long, ignore_index, phase. The validation fraction counts records. Rank 0
// of `world` logs how many records are left out.
std::shared_ptr<Stream> open_conversations(const Value& options, const World& world);
std::shared_ptr<Stream> open_preferences(const Value& options, const World& world);

// Implements data.prompts{path, batch, axis, max_prompt_tokens, too_long, seed, split, validation, shuffle, allow, phase}.
std::shared_ptr<PromptStream> open_prompts(const Value& options, const World& world);

// One entry of a blend.
struct BlendEntry {
  std::shared_ptr<Stream> stream;
  double weight = 0;
};
// Implements data.blend{{stream, weight}, ..., batch =, seed =, allow =}. The ranks that share a batch, and the micro-batches,
// are those of the streams, which must have the same. Throws Misuse for others, for no streams and for weights that are not above
// 0.
std::shared_ptr<Stream> open_blend(const std::vector<BlendEntry>& entries, const Value& options);

}  // namespace zt::data
