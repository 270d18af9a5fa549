#include "huggingface/text/metaspace.h"

#include "zt/base/error.h"

namespace zt::data::huggingface {

Metaspace parse_metaspace(const JsonFields& fields) {
  fields.allow_only({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  Metaspace options;
  options.replacement = fields.character("replacement");
  options.splits = fields.flag("split", true);
  const std::string scheme = fields.text("prepend_scheme", "always");
  if (scheme == "first") options.scheme = PrependScheme::first;
  else if (scheme == "never") options.scheme = PrependScheme::never;
  else if (scheme != "always") fault("{}: '{}' must be always, first or never", fields.place_of("prepend_scheme"), scheme);
  if (!fields.flag("add_prefix_space", true)) {
    // Files of older versions have add_prefix_space only.
    if (fields.has("prepend_scheme") && options.scheme != PrependScheme::never) {
      fault("{}: add_prefix_space is false, but prepend_scheme is '{}': they contradict each other", fields.place(), scheme);
    }
    options.scheme = PrependScheme::never;
  }
  return options;
}

}  // namespace zt::data::huggingface
