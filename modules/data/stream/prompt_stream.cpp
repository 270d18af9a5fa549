#include "prompt_stream.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "zt/base/error.h"

namespace zt {
ZT_DEFINE_OBJECT(data::PromptStream, "PromptStream")
}

namespace zt::data {

PromptStream::PromptStream(std::string name, std::shared_ptr<const TokenFile> file, std::vector<Prompt> prompts,
                           std::shared_ptr<const JsonLines> items, StreamOptions options)
    : Steps(std::move(name), with_epoch_order(options)),
      file_(std::move(file)),
      prompts_(std::move(prompts)),
      items_(std::move(items)),
      order_(static_cast<int64_t>(prompts_.size()), options.seed, options.shuffle) {}

PromptBatch PromptStream::batch(int64_t step) const {
  const std::vector<int64_t> numbers = this->numbers(step);
  PromptBatch batch;
  for (const Place& place : order_.places(numbers)) {
    const Prompt& prompt = prompts_[static_cast<size_t>(place.sample)];
    const at::Tensor tokens = at::empty({prompt.tokens.size}, at::kLong);
    file_->read(prompt.tokens.begin, {tokens.data_ptr<int64_t>(), static_cast<size_t>(prompt.tokens.size)});
    batch.prompts.push_back(tokens);
    batch.items.push_back(items_->read(prompt.record));
    if (!batch.items.back().get_if<Value::Table>())
      fault("line {} of '{}' is no JSON object, as a record is: make the files again with ztoolkit tokenize --chat",
            prompt.record + 1, items_->path());
  }
  batch.sample = at::tensor(numbers, at::kLong);
  return batch;
}

}  // namespace zt::data
