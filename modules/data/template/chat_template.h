// Chat templates in the language of jinja2, as Hugging Face's transformers renders them.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "zt/text/chat_template.h"

namespace zt::data {

// Parses the source of a template. The language is that of jinja2 with the settings of transformers: trim_blocks, lstrip_blocks,
// the statements break, continue and generation, and an immutable sandbox. `name` is for messages.
//
// Differences from transformers: the keys of tables come in ascending order, because tables of zt::Value have it, unless they are
// a KeptJson (kept_json.h). An integer outside of 64 bits, and the printing of a generator, a function or another value whose
// text has an address, are a Fault. So are more than 1,000,000 steps, 1 MiB of output or of one string, and a nesting deeper
// than 64. The statements include, import, extends, block and autoescape, and the filters pprint, random and urlize are refused.
//
// Fields of a message that are null are left out, as transformers does.
//
// Variables: the template also sees messages, add_generation_prompt, and tools and documents, which are none if they are not
// given. Strings whose name ends with _token do not count as contents (RenderedChat::contents), nor does the
// role of a message that is one word. render() throws Misuse for
// messages that are no list of tables, and for strings that are not UTF-8.
//
// Throws Fault, with the line, for a construct that is wrong or unknown.
std::shared_ptr<ChatTemplate> parse_chat_template(std::string_view source, const std::string& name);
// The same with a clock: the function strftime_now of templates prints the time that it returns.
std::shared_ptr<ChatTemplate> parse_chat_template(std::string_view source, const std::string& name,
                                                  std::function<std::time_t()> clock);

}  // namespace zt::data
