// The scripts of characters, as Hugging Face's tokenizers has them (Unicode 8, with changes of its own).
#pragma once

namespace zt::data::huggingface {

// The number of the script of a space and of every character without a script. These join any neighbour.
constexpr int kAnyScript = 0;

// Returns the number of the character's script. Hiragana, Katakana and Han are one script.
int script_of(char32_t character);

}  // namespace zt::data::huggingface
