// The files beside the tokens that a text becomes.
#pragma once

#include <span>
#include <string>

#include "tokenizer.h"
#include "tokens/companion.h"
#include "tokens/npy.h"

namespace zt::data {

// Throws Misuse if the outputs' folder is missing or cannot be written, or if an output would replace the text or something that
// is not a regular file. The outputs are `output`, which is NAME.npy, with each of these endings.
void check_outputs(const std::string& input, const std::string& output, std::span<const char* const> endings);

// Returns the type of a token file with the tokenizer's ids.
NpyType token_type(const Tokenizer& tokenizer);

// Writes NAME.json, and for a tokenizer with a model its file, beside `output`, which is NAME.npy. Sets the fields of the
// companion that name the model.
void write_companions(const Tokenizer& tokenizer, const std::string& output, Companion companion, io::FileSystem& files);

}  // namespace zt::data
