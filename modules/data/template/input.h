// Converts values of scripts to values of templates.
#pragma once

#include "template/value/run.h"
#include "zt/base/value.h"

namespace zt::data::jinja {

// `path` names the value in messages, such as "messages[1].content". `marks` are those of the characters of strings. A value may
// be or contain a KeptJson (kept_json.h). Throws Misuse for a string that is not UTF-8, for tensors and other objects, and for
// tables that are nested too deep.
TemplateValue template_value(TemplateRun& run, const zt::Value& value, const std::string& path, char32_t marks);
// Returns the messages as a list of dicts. As in transformers, the reasoning of a message has the names `reasoning_content` and
// `thinking`, whichever of these or `reasoning` the message has. Throws Misuse as template_value, and for other values.
TemplateValue template_messages(TemplateRun& run, const zt::Value& messages);

}  // namespace zt::data::jinja
