// Measures the tokens per second of making batches, the bytes per second of tokenizing, and permutations. Every stream checks one
// batch before it is timed.
#include <ATen/ops/equal.h>
#include <benchmark/benchmark.h>

#include <filesystem>

#include "stream/document_source.h"
#include "stream/permutation.h"
#include "stream/window_source.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

constexpr int64_t kTokens = 10'000'000, kVocab = 4096, kDocument = 100;

// Returns a corpus of kTokens pseudo-random tokens. Token 0 ends a document every kDocument tokens.
std::shared_ptr<const TokenFile> corpus() {
  const std::string path = std::filesystem::temp_directory_path() / "zt-data-bench.npy";
  std::vector<int32_t> tokens(static_cast<size_t>(kTokens));
  for (int64_t i = 0; i < kTokens; ++i) {
    tokens[static_cast<size_t>(i)] = i % kDocument == kDocument - 1 ? 0 : static_cast<int32_t>(1 + i * 2654435761 % (kVocab - 1));
  }
  NpyWriter writer(path, NpyType::u16);
  writer.append(tokens);
  writer.commit();
  auto file = std::make_shared<const TokenFile>(path, kVocab);
  std::filesystem::remove(path);  // the open file stays readable until the program ends
  return file;
}

const std::shared_ptr<const TokenFile>& shared_corpus() {
  static const auto file = corpus();
  return file;
}

void run(benchmark::State& state, std::unique_ptr<SampleSource> source, int64_t rows) {
  Stream stream("bench", std::move(source), {.batch = rows, .seed = 1});
  const Fields first = stream.batch(0);
  const auto labels = first.at("labels").narrow(1, 0, first.at("labels").size(1) - 1);
  const auto next = first.at("tokens").narrow(1, 1, labels.size(1));
  const auto inside = labels.gt(0);  // excludes ends of documents and padding
  if (!at::equal(labels.masked_select(inside), next.masked_select(inside)))
    return state.SkipWithError("labels are not the next tokens");
  int64_t step = 0;
  for (auto _ : state) benchmark::DoNotOptimize(stream.batch(step++));
  state.SetItemsProcessed(state.iterations() * rows * stream.source().seq());
}

void windows(benchmark::State& state) {
  const int64_t rows = state.range(0), seq = state.range(1);
  run(state, std::make_unique<WindowSource>(shared_corpus(), IndexRange{0, kTokens}, seq, WindowSource::Cut::shifted), rows);
}
BENCHMARK(windows)->ArgNames({"rows", "seq"})->Args({16, 128})->Args({8, 1024})->Args({64, 2048});

void documents(benchmark::State& state) {
  const RowOptions options{.seq = state.range(1), .pack = state.range(2) != 0};
  const auto& file = shared_corpus();
  auto records = std::make_unique<TextRecords>(file, documents_by_separator(*file, 0), options.seq);
  run(state, std::make_unique<DocumentSource>(std::move(records), options), state.range(0));
}
BENCHMARK(documents)->ArgNames({"rows", "seq", "pack"})->Args({16, 128, 0})->Args({8, 1024, 1});

void permutation(benchmark::State& state) {
  const Permutation order(state.range(0), Philox(1));
  int64_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(order(i++ % state.range(0)));
}
BENCHMARK(permutation)->Arg(2)->Arg(1000)->Arg(80'000)->Arg(int64_t{1} << 40);

void unigram_entropy(benchmark::State& state) {
  const WindowSource source(shared_corpus(), {0, kTokens}, 128, WindowSource::Cut::fixed);
  for (auto _ : state) benchmark::DoNotOptimize(source.entropy());
  state.SetItemsProcessed(state.iterations() * kTokens);
}
BENCHMARK(unigram_entropy)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state) {
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += fmt::format("The {}th entry: a word, its kind and what it means. See {}.\n", i, i * 7919 % 997);
  const auto tokenizer = train_sentencepiece(text, {.vocab = 500}, "bench");
  std::vector<int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer->encode(std::string_view(text).substr(0, 1 << 16), ids);
  }
  state.SetBytesProcessed(state.iterations() * (1 << 16));
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace zt::data

BENCHMARK_MAIN();
