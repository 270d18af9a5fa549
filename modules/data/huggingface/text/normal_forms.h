// Unicode's normal forms (UAX 15) of aligned texts.
#pragma once

#include "huggingface/text/aligned_text.h"

namespace zt::data::huggingface {

enum class NormalForm : unsigned char { nfc, nfd, nfkc, nfkd };

// Takes time in proportion to the text, times the logarithm of the longest run of combining marks.
void normalize_form(AlignedText& text, NormalForm form);

}  // namespace zt::data::huggingface
