// Writes a conversation as the text that a model was trained on.
#pragma once

#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/value.h"
#include "zt/text/tokenizer.h"

namespace zt {

struct RenderedChat {
  std::string text;
  // Ranges of the text that come from strings of the messages and variables, not from the template: EncodeOptions::contents.
  // Ascending and disjoint.
  std::vector<TextRange> contents;
  // Ranges within {% generation %} blocks: what the model answers. Ascending and disjoint.
  std::vector<TextRange> answers;
};

// Threads: any; several may render at the same time.
class ChatTemplate {
 public:
  virtual ~ChatTemplate();
  // `messages` is a list of tables such as {role = "user", content = "..."}; `variables` a table of further names that the
  // template reads, such as `bos_token` and `tools`. Both may be or contain JSON as it was written: data.json in Lua keeps the
  // order of names, null, empty lists and floating-point numbers, which tables do not. `add_generation_prompt`: the text ends
  // where the model's next answer begins. Throws Fault, with the line in the template, if the template is wrong, raises an
  // exception itself, or exceeds a limit.
  virtual RenderedChat render(const Value& messages, const Value& variables, bool add_generation_prompt) const = 0;
  // Returns the source of the template.
  virtual const std::string& source() const = 0;
};

ZT_OBJECT(ChatTemplate)

}  // namespace zt
