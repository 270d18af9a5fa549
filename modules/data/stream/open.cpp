#include "open.h"

#include <optional>

#include "document_source.h"
#include "stream_options.h"
#include "window_source.h"

namespace zt::data {

namespace {

struct TextOptions : CommonStreamOptions {
  int64_t seq = 0;
  std::optional<int64_t> vocab;
};

struct DocumentOptions : TextOptions {
  std::optional<int64_t> separator;
  std::string offsets;
  int64_t pad = 0, ignore_index = -100;
  bool pack = false;
};

template <class T>
Schema<T> text_schema(const char* name) {
  return with_rows(common_schema<T>(name))
      .optional("vocab", &T::vocab, "number of token ids; default: what the tokenizer recorded", at_least(1));
}

const auto kTokens = text_schema<TextOptions>("data.tokens");
const auto kDocuments =
    with_phase(text_schema<DocumentOptions>("data.documents"))
        .optional("separator", &DocumentOptions::separator, "id of the token that ends a document")
        .optional("offsets", &DocumentOptions::offsets, "path of an .npy file with the offsets of the documents")
        .optional("pad", &DocumentOptions::pad, "token of the positions after the end of a document")
        .optional("ignore_index", &DocumentOptions::ignore_index, "label of those positions")
        .optional("pack", &DocumentOptions::pack, "fill rows with several documents; adds the fields segments and positions");

std::vector<Document> find_documents(const TokenFile& file, const DocumentOptions& options) {
  if (options.separator.has_value() != options.offsets.empty()) {
    misuse("data.documents needs to know where documents end: give either separator (a token id) or offsets (an .npy file)");
  }
  return options.separator ? documents_by_separator(file, *options.separator) : documents_by_offsets(file, options.offsets);
}

struct BlendOptions {
  int64_t batch = 0, seed = 0;
  std::optional<std::string> allow;
};
const auto kBlend =
    Schema<BlendOptions>("data.blend")
        .required("batch", &BlendOptions::batch, "samples per global batch, over all ranks", at_least(1))
        .optional("seed", &BlendOptions::seed, "of where the interleaving begins")
        .optional("allow", &BlendOptions::allow, "'other_order': a checkpoint of a stream with another order is loaded, too",
                  one_of({kOtherOrder}));

// Throws Misuse unless the streams are shared by the same ranks.
void check_entries(const std::vector<BlendEntry>& entries) {
  if (entries.empty()) misuse("data.blend has no streams: give data.blend{{{{stream, weight}}, ..., batch = n}}");
  const StreamOptions& first = entries.front().stream->options();
  for (size_t i = 0; i < entries.size(); ++i) {
    const StreamOptions& own = entries[i].stream->options();
    if (!std::isfinite(entries[i].weight) || entries[i].weight <= 0)
      misuse("data.blend: the weight of stream {} must be above 0, got {}: leave the stream out", i + 1, entries[i].weight);
    if (own.ranks != first.ranks || own.rank != first.rank) {
      misuse(
          "data.blend: stream 1 is shared by {} ranks, of which this is {}, and stream {} by {} ranks, of which this is {}: give "
          "all streams the same axis",
          first.ranks, first.rank, i + 1, own.ranks, own.rank);
    }
    if (own.micro_batches != first.micro_batches) {
      misuse("data.blend: stream 1 has micro_batches = {}, and stream {} has {}: give all streams the same", first.micro_batches,
             i + 1, own.micro_batches);
    }
  }
}

}  // namespace

std::shared_ptr<Stream> open_tokens(const Value& value) {
  const TextOptions options = kTokens.parse(value);
  auto file = std::make_shared<const TokenFile>(options.path, options.vocab.value_or(0));
  const IndexRange range = split_range(file->size(), options.validation, parse_split(options.split));
  const auto cut = options.shuffle ? WindowSource::Cut::shifted : WindowSource::Cut::fixed;
  Value::Table order = order_of(*file, options);
  order["seq"] = options.seq;
  auto all = stream_options(kTokens.name(), options, std::move(order));
  return std::make_shared<Stream>(kTokens.name(), std::make_unique<WindowSource>(std::move(file), range, options.seq, cut),
                                  std::move(all));
}

std::shared_ptr<Stream> open_documents(const Value& value) {
  const DocumentOptions options = kDocuments.parse(value);
  auto file = std::make_shared<const TokenFile>(options.path, options.vocab.value_or(0));
  const std::vector<Document> all = find_documents(*file, options);
  std::vector<Document> documents;
  for (const int64_t index : chosen_of(static_cast<int64_t>(all.size()), options))
    documents.push_back(all[static_cast<size_t>(index)]);
  Value::Table order = order_of(*file, options);
  order["seq"] = options.seq;
  order["pack"] = options.pack;
  if (options.separator) order["separator"] = *options.separator;
  else order["offsets"] = NpyFile(options.offsets).digest();
  auto records = std::make_unique<TextRecords>(std::move(file), std::move(documents), options.seq);
  const RowOptions rows{.seq = options.seq, .pad = options.pad, .ignore_index = options.ignore_index, .pack = options.pack};
  auto source = std::make_unique<DocumentSource>(std::move(records), rows);
  return std::make_shared<Stream>(kDocuments.name(), std::move(source),
                                  stream_options(kDocuments.name(), options, std::move(order)));
}

std::shared_ptr<Stream> open_blend(const std::vector<BlendEntry>& entries, const Value& value) {
  const BlendOptions options = kBlend.parse(value);
  check_entries(entries);
  const StreamOptions& first = entries.front().stream->options();
  std::vector<std::shared_ptr<const Stream>> streams;
  std::vector<double> weights;
  for (const BlendEntry& entry : entries) {
    streams.push_back(entry.stream);
    weights.push_back(entry.weight);
  }
  auto samples = std::make_unique<BlendSequence>(std::move(streams), std::move(weights), options.seed);
  Value::Table order{{"seed", options.seed}};
  for (size_t i = 0; i < entries.size(); ++i) {
    order[fmt::format("weight of stream {}", i + 1)] = samples->weights()[i];
    for (const auto& [key, text] : entries[i].stream->options().order) order[fmt::format("{} of stream {}", key, i + 1)] = text;
  }
  StreamOptions all = first;
  all.batch = options.batch;
  all.seed = options.seed;
  all.shuffle = true;
  all.order = std::move(order);
  all.takes_other_order = options.allow.has_value();
  check_ranks_alike(kBlend.name(), all);
  return std::make_shared<Stream>(kBlend.name(), std::move(samples), std::move(all));
}

}  // namespace zt::data
