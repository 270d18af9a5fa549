#include "open.h"

#include <optional>

#include "document_source.h"
#include "window_source.h"
#include "zt/base/options.h"
#include "zt/comm/alike.h"
#include "zt/comm/mesh.h"

namespace zt::data {

namespace {

struct Options {
  std::string path;
  int64_t seq = 0, batch = 0;
  std::shared_ptr<Axis> axis;
  int64_t seed = 0;
  std::string split = "train";
  double validation = 0.05;
  bool shuffle = true;
  int64_t micro_batches = 1;
  std::optional<int64_t> vocab;
  std::optional<int64_t> separator;
  std::string offsets;
  int64_t pad = 0, ignore_index = -100;
  bool pack = false;
  std::optional<std::string> allow;
};

Schema<Options> common(const char* name) {
  return Schema<Options>(name)
      .required("path", &Options::path, "the token file, made by ztoolkit tokenize")
      .required("seq", &Options::seq, "tokens per sample", at_least(1))
      .required("batch", &Options::batch, "samples per global batch, over all ranks", at_least(1))
      .optional("axis", &Options::axis, "mesh axis whose ranks share the batch; default: none, this rank reads all of it")
      .optional("seed", &Options::seed, "seed of the order of samples")
      .only_with("with shuffle = true", [](const Options& o) { return o.shuffle; })
      .optional("split", &Options::split, "'train' or 'validation'", one_of({"train", "validation"}))
      .optional("validation", &Options::validation, "fraction of the data, at the end of the file, kept for validation",
                between(0, 1))
      .optional("shuffle", &Options::shuffle, "give each epoch an order of its own")
      .optional("micro_batches", &Options::micro_batches, "micro-batches that each rank's samples must divide into", at_least(1))
      .optional("vocab", &Options::vocab, "number of token ids; default: what the tokenizer recorded", at_least(1))
      .optional("allow", &Options::allow, "'other_order': a checkpoint of a stream with another order is loaded, too",
                one_of({kOtherOrder}));
}

const auto kTokens = common("data.tokens");
const auto kDocuments =
    common("data.documents")
        .optional("separator", &Options::separator, "id of the token that ends a document")
        .optional("offsets", &Options::offsets, "path of an .npy file with the offsets of the documents")
        .optional("pad", &Options::pad, "token of the positions after the end of a document")
        .optional("ignore_index", &Options::ignore_index, "label of those positions")
        .optional("pack", &Options::pack, "fill rows with several documents; adds the fields segments and positions");

// Returns the options that define the samples of every stream and their order, besides seed and shuffle. A file is known by its
// content, because files are moved.
Value::Table order_of(const TokenFile& file, const Options& options) {
  return {{"tokens", file.digest()}, {"seq", options.seq}, {"split", options.split}, {"validation", options.validation}};
}

// Throws Misuse on all ranks of the axis unless they read parts of the same batches.
void check_ranks_alike(const std::string& name, const Options& options, const Value::Table& order) {
  if (!options.axis) return;
  Facts facts;
  const auto add = [&](const std::string& option, const Value& value) {
    facts.emplace_back(fmt::format("the option '{}' of {}", option, name), text_of(value));
  };
  add("batch", options.batch);
  add("seed", options.seed);
  add("shuffle", options.shuffle);
  for (const auto& [option, value] : order) add(option, value);
  check_alike(facts, options.axis->control.get(), "the ranks would not read parts of the same batches");
}

std::shared_ptr<Stream> make_stream(const std::string& name, const Options& options, Value::Table order,
                                    std::unique_ptr<SampleSource> source) {
  check_ranks_alike(name, options, order);
  return std::make_shared<Stream>(name, std::move(source),
                                  StreamOptions{.batch = options.batch,
                                                .rank = options.axis ? options.axis->coordinate : 0,
                                                .ranks = options.axis ? options.axis->size : 1,
                                                .micro_batches = options.micro_batches,
                                                .seed = options.seed,
                                                .shuffle = options.shuffle,
                                                .order = std::move(order),
                                                .takes_other_order = options.allow.has_value()});
}

std::vector<Document> find_documents(const TokenFile& file, const Options& options) {
  if (options.separator.has_value() != options.offsets.empty()) {
    misuse("data.documents needs to know where documents end: give either separator (a token id) or offsets (an .npy file)");
  }
  return options.separator ? documents_by_separator(file, *options.separator) : documents_by_offsets(file, options.offsets);
}

}  // namespace

std::shared_ptr<Stream> open_tokens(const Value& value) {
  const Options options = kTokens.parse(value);
  auto file = std::make_shared<const TokenFile>(options.path, options.vocab.value_or(0));
  const IndexRange range = split_range(file->size(), options.validation, parse_split(options.split));
  const auto cut = options.shuffle ? WindowSource::Cut::shifted : WindowSource::Cut::fixed;
  Value::Table order = order_of(*file, options);
  return make_stream(kTokens.name(), options, std::move(order),
                     std::make_unique<WindowSource>(std::move(file), range, options.seq, cut));
}

std::shared_ptr<Stream> open_documents(const Value& value) {
  const Options options = kDocuments.parse(value);
  auto file = std::make_shared<const TokenFile>(options.path, options.vocab.value_or(0));
  const std::vector<Document> all = find_documents(*file, options);
  const IndexRange range = split_range(static_cast<int64_t>(all.size()), options.validation, parse_split(options.split));
  std::vector<Document> documents(all.begin() + range.begin, all.begin() + range.end);
  Value::Table order = order_of(*file, options);
  order["pack"] = options.pack;
  if (options.separator) order["separator"] = *options.separator;
  else order["offsets"] = NpyFile(options.offsets).digest();
  const DocumentOptions layout{
      .seq = options.seq, .pad = options.pad, .ignore_index = options.ignore_index, .pack = options.pack};
  return make_stream(kDocuments.name(), options, std::move(order),
                     std::make_unique<DocumentSource>(std::move(file), std::move(documents), layout));
}

}  // namespace zt::data
