#include "huggingface/token_template.h"

#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

int32_t template_id(const JsonValue& value, const std::string& place, int64_t vocab) {
  const int32_t id = id_from(value, place);
  if (id >= vocab) fault("{}: the id {} is not in the vocabulary, which has the ids 0 to {}", place, id, vocab - 1);
  return id;
}

// Reads a token of BertProcessing and RobertaProcessing: ["[SEP]", 102].
int32_t id_of_pair(const JsonFields& fields, std::string_view name, int64_t vocab) {
  const JsonValue& pair = fields.list(name);
  if (pair.size() != 2 || !pair[0].is_string()) fault("{}: this must be a token and its id", fields.place_of(name));
  return template_id(pair[1], fields.place_of(name), vocab);
}

}  // namespace

TokenTemplate::TokenTemplate(const JsonFields& fields, int64_t vocab) : TokenTemplate() {
  const std::string type = fields.has("type") ? fields.text("type") : "";
  if (type == "TemplateProcessing") {
    read_template(fields, vocab);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    if (type == "BertProcessing") fields.allow_only({"type", "sep", "cls"});
    else fields.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    parts_ = {{false, {id_of_pair(fields, "cls", vocab)}}, {true, {}}, {false, {id_of_pair(fields, "sep", vocab)}}};
  } else if (type == "ByteLevel") {
    fields.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "Sequence") {
    fields.allow_only({"type", "processors"});
    const JsonValue& list = fields.list("processors");
    for (size_t i = 0; i < list.size(); ++i) {
      TokenTemplate each({list[i], fmt::format("{}[{}]", fields.place_of("processors"), i)}, vocab);
      if (each.adds_nothing()) continue;
      if (!adds_nothing()) fields.refuse("post-processor", "more than one of its processors adds tokens");
      *this = std::move(each);
    }
  } else {
    fields.refuse("post-processor", "known are TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence");
  }
}

void TokenTemplate::read_template(const JsonFields& fields, int64_t vocab) {
  fields.allow_only({"type", "single", "pair", "special_tokens"});
  const JsonValue& single = fields.list("single");
  const JsonFields tokens = fields.fields("special_tokens");
  parts_.clear();
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonFields part(single[i], fmt::format("{}[{}]", fields.place_of("single"), i));
    if (part.has("Sequence")) {
      if (part.fields("Sequence").text("id") != "A") fault("{}: the template for one text asks for a second one", part.place());
      parts_.push_back({true, {}});
      continue;
    }
    const JsonFields token = tokens.fields(part.fields("SpecialToken").text("id"));
    Part added{false, {}};
    for (const JsonValue& id : token.list("ids")) added.tokens.push_back(template_id(id, token.place_of("ids"), vocab));
    parts_.push_back(std::move(added));
  }
}

void TokenTemplate::apply(std::vector<int32_t>& ids, size_t begin) const {
  if (adds_nothing()) return;
  const std::vector<int32_t> text(ids.begin() + static_cast<ptrdiff_t>(begin), ids.end());
  ids.resize(begin);
  for (const Part& part : parts_) {
    const std::vector<int32_t>& tokens = part.is_text ? text : part.tokens;
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  }
}

}  // namespace zt::data::huggingface
