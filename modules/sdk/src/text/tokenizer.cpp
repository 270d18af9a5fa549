#include "zt/text/tokenizer.h"

namespace zt {

ZT_DEFINE_OBJECT(Tokenizer, "Tokenizer")

Tokenizer::~Tokenizer() = default;

}  // namespace zt
