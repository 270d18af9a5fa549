#include "zt/text/chat_template.h"

namespace zt {

ZT_DEFINE_OBJECT(ChatTemplate, "ChatTemplate")

ChatTemplate::~ChatTemplate() = default;

}  // namespace zt
