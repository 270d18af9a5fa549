// Translates the sets of characters of Oniguruma, such as [^\s\p{L}], to PCRE2.
#pragma once

#include <string>

#include "huggingface/text/oniguruma_scanner.h"

namespace zt::data::huggingface {

// Takes a set, which starts at the scanner's place. Returns an expression of PCRE2. Throws Fault as translate_oniguruma.
std::string translate_class(OnigurumaScanner& in);

}  // namespace zt::data::huggingface
