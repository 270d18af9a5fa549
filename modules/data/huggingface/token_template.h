// The post-processors of tokenizer.json: they put special tokens around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Threads: any.
class TokenTemplate {
 public:
  // Adds nothing.
  TokenTemplate() : parts_{Part{}} {}
  // Reads TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (which adds nothing), or a Sequence of these of which
  // at most one adds tokens. Only the template for a single text counts. Throws Fault if it is something else, or if an id is not
  // below `vocab`.
  TokenTemplate(const JsonFields& fields, int64_t vocab);

  // Replaces the ids after the first `begin` ones, which are those of a text, by the ids with special tokens.
  void apply(std::vector<int32_t>& ids, size_t begin) const;

 private:
  struct Part {
    bool is_text = true;
    std::vector<int32_t> tokens;  // what is added, unless `is_text`
  };

  void read_template(const JsonFields& fields, int64_t vocab);
  bool adds_nothing() const { return parts_.size() == 1 && parts_[0].is_text; }

  std::vector<Part> parts_;
};

}  // namespace zt::data::huggingface
