// Batches of prompts, for which a script generates answers.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "chat_file.h"
#include "epoch_order.h"
#include "steps.h"
#include "tokens/json_lines.h"
#include "zt/base/object.h"
#include "zt/base/value.h"

namespace zt::data {

struct PromptBatch {
  std::vector<at::Tensor> prompts;  // int64 [tokens], one per row
  Value::List items;                // the JSON of each prompt's record
  at::Tensor sample;                // int64 [rows]: the sample numbers g
};

// The order is that of EpochOrder over the prompts. Threads: one at a time. Throws: Misuse for wrong arguments, Fault for damaged
// data.
class PromptStream : public Steps {
 public:
  // Requires at least one prompt, and a line of `items` per record of the file.
  PromptStream(std::string name, std::shared_ptr<const TokenFile> file, std::vector<Prompt> prompts,
               std::shared_ptr<const JsonLines> items, StreamOptions options);

  // Returns this rank's part of the batch of `step`.
  PromptBatch batch(int64_t step) const;
  int64_t epoch(int64_t step) const { return first_sample(step) / order_.samples(); }  // of the step's first sample
  int64_t samples() const { return order_.samples(); }                                 // prompts per epoch
  const TokenFile& file() const { return *file_; }

 private:
  std::shared_ptr<const TokenFile> file_;
  std::vector<Prompt> prompts_;
  std::shared_ptr<const JsonLines> items_;
  EpochOrder order_;
};

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::PromptStream)
}
