// The Lua binding of the module.
#include "documents.h"
#include "streams.h"
#include "texts.h"

ZT_LUA_MODULE(data) {
  zt::data::open_streams(module);
  zt::data::open_texts(module);
  zt::data::open_document_files(module);
  module.from_lua("tokenize_chat", "zt.data.tokenize_chat");
}
