#include "document_writer.h"

#include <array>
#include <optional>

#include "outputs.h"
#include "text_reader.h"
#include "zt/base/error.h"
#include "zt/io/io_errors.h"

namespace zt {
ZT_DEFINE_OBJECT(data::DocumentWriter, "DocumentWriter")
}  // namespace zt

namespace zt::data {

namespace {

constexpr const char* kMaskEnding = ".mask.npy";
constexpr const char* kOffsetsEnding = ".offsets.npy";
constexpr const char* kItemsEnding = ".items.jsonl";
constexpr std::array kDocumentOutputs{".npy", ".json", ".model", ".tokenizer.json", kMaskEnding, kOffsetsEnding, kItemsEnding};

void remove_old(io::FileSystem& files, const std::string& path) {
  if (files.kind_of(path) == io::EntryKind::missing) return;
  io::retry_or_fault(files, "remove", path, [&] { return files.remove(path); });
}

}  // namespace

void check_documents(const std::string& input, const std::string& output) {
  const FileText text(input);
  if (text.size() == 0) fault("'{}' is empty: there is nothing to tokenize", text.path());
  check_outputs(input, output, kDocumentOutputs);
}

struct DocumentWriter::Files {
  Files(const Tokenizer& tokenizer, const std::string& output, Items kind, io::FileSystem& files)
      : tokens(output, token_type(tokenizer), files),
        mask(beside(output, kMaskEnding), NpyType::u8, files),
        offsets(beside(output, kOffsetsEnding), NpyType::i64, files) {
    if (kind == Items::lines) items.emplace(beside(output, kItemsEnding), files);
    offsets.append(std::array<int64_t, 1>{0});
  }

  NpyWriter tokens, mask, offsets;
  std::optional<io::AtomicFile> items;
};

DocumentWriter::DocumentWriter(std::shared_ptr<const Tokenizer> tokenizer, std::string output, Items items, io::FileSystem& files)
    : tokenizer_(std::move(tokenizer)),
      output_(std::move(output)),
      files_(files),
      open_(std::make_unique<Files>(*tokenizer_, output_, items, files_)) {}

DocumentWriter::~DocumentWriter() = default;

DocumentWriter::Files& DocumentWriter::open_files() const {
  if (!open_) misuse("the writer of '{}' was committed or discarded: make another one", output_);
  return *open_;
}

void DocumentWriter::add(std::span<const int32_t> tokens, std::span<const uint8_t> counts) {
  Files& open = open_files();
  if (tokens.size() != counts.size())
    misuse("a document with {} tokens needs as many numbers in its mask, got {}", tokens.size(), counts.size());
  if (tokens.empty()) misuse("a document without tokens cannot be written to '{}': leave it out", output_);
  open.tokens.append(tokens);
  open.mask.append(counts);
  open.offsets.append(std::array<int64_t, 1>{open.tokens.count()});
}

void DocumentWriter::add_item(std::string_view line) {
  Files& open = open_files();
  if (!open.items) misuse("'{}' has no items: only prompts have a line per record beside the tokens", output_);
  open.items->append(std::string(line) + "\n");
}

void DocumentWriter::commit(Companion companion) {
  Files& open = open_files();
  if (open.tokens.count() == 0) misuse("there is no document to write to '{}'", output_);
  companion.tokens = open.tokens.count();
  companion.vocab = tokenizer_->vocab();
  companion.tokenizer = tokenizer_->kind();
  remove_old(files_, output_);
  if (open.items) {
    open.items->commit();
  } else {
    remove_old(files_, beside(output_, kItemsEnding));
  }
  open.mask.commit();
  open.offsets.commit();
  write_companions(*tokenizer_, output_, std::move(companion), files_);
  open.tokens.commit();
  open_.reset();
}

void DocumentWriter::discard() {
  open_.reset();
}

}  // namespace zt::data
