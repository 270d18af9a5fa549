#include "sentencepiece_tokenizer.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "sentencepiece/library.h"
#include "tokenize.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

constexpr int64_t kBlocks = 64;             // blocks of the text from which the training sample is taken
constexpr size_t kLongestSentence = 65536;  // bytes; the library skips longer sentences

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOwnScope = 0;  // the sanitizers refuse RTLD_DEEPBIND
#else
constexpr int kOwnScope = RTLD_DEEPBIND;
#endif

// Returns the path of libzt_sentencepiece.so, which lies beside libzt.so. (Under a sanitizer, dlopen does not search the folders
// that the calling library names.)
std::string path_of_library() {
  Dl_info sdk;
  if (dladdr(reinterpret_cast<void*>(&describe), &sdk) == 0) return "libzt_sentencepiece.so";
  return std::filesystem::path(sdk.dli_fname).replace_filename("libzt_sentencepiece.so");
}

// Opens libzt_sentencepiece.so on the first call. It is never closed. Throws Fault if the installation lacks it.
const PieceLibrary& piece_library() {
  static const PieceLibrary& library = []() -> const PieceLibrary& {
    void* handle = dlopen(path_of_library().c_str(), RTLD_NOW | RTLD_LOCAL | kOwnScope);
    const auto function = handle ? reinterpret_cast<PieceLibraryFunction>(dlsym(handle, kPieceLibraryFunction)) : nullptr;
    if (!function) fault("cannot use sentencepiece's library: {}. Install ztoolkit again", dlerror());
    return function();
  }();
  return library;
}

// A piece that stands for no text, such as "</s>".
using ControlPiece = std::pair<std::string, int>;

// Iterates over the control pieces that a text spells outside of `contents`, from left to right.
class ControlFinder {
 public:
  struct Found {
    size_t begin, end;
    int id;
  };
  ControlFinder(const std::vector<ControlPiece>& pieces, std::string_view text, std::span<const TextRange> contents)
      : pieces_(pieces), text_(text), contents_(contents), places_(pieces.size()) {
    for (size_t i = 0; i < pieces.size(); ++i) places_[i] = place_of(i, 0);
  }

  // Returns the next one: of those that begin first, the longest.
  std::optional<Found> next() {
    size_t best = pieces_.size();
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (places_[i] != std::string_view::npos && places_[i] < at_) places_[i] = place_of(i, at_);
      if (places_[i] == std::string_view::npos) continue;
      const bool is_before = best == pieces_.size() || places_[i] < places_[best];
      if (is_before || (places_[i] == places_[best] && pieces_[i].first.size() > pieces_[best].first.size())) best = i;
    }
    if (best == pieces_.size()) return std::nullopt;
    const size_t begin = places_[best];
    at_ = begin + pieces_[best].first.size();
    return Found{begin, at_, pieces_[best].second};
  }

 private:
  // Returns the first place from `from` on where the text has this piece and no user wrote a part of it.
  size_t place_of(size_t piece, size_t from) const {
    const std::string& spelled = pieces_[piece].first;
    if (spelled.empty()) return std::string_view::npos;
    size_t at = text_.find(spelled, from);
    while (at != std::string_view::npos) {
      const auto after = std::ranges::upper_bound(contents_, at, {}, &TextRange::end);  // the first that ends after the place
      if (after == contents_.end() || after->begin >= at + spelled.size()) break;
      at = text_.find(spelled, at + 1);
    }
    return at;
  }

  const std::vector<ControlPiece>& pieces_;
  const std::string_view text_;
  const std::span<const TextRange> contents_;
  std::vector<size_t> places_;  // by piece: of its next occurrence; before at_: not known
  size_t at_ = 0;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view serialized, const std::string& name) : serialized_(serialized) {
    std::string complaint;
    model_ = piece_library().load(serialized_, complaint);
    if (!model_ || model_->pieces() < 1) {
      fault("'{}' is not a sentencepiece model ({}): give the .model file that ztoolkit tokenize wrote", name,
            complaint.empty() ? "it has no pieces" : complaint);
    }
    for (int id = 0; id < model_->pieces(); ++id) {
      if (model_->is_control(id)) controls_.emplace_back(model_->piece(id), id);
    }
  }

  const char* kind() const override { return "sentencepiece"; }
  int64_t vocab() const override { return model_->pieces(); }
  const std::string& model() const override { return serialized_; }

  void encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options) const override {
    if (options.specials == Specials::none) return encode_plain(text, out);
    if (options.specials == Specials::added && model_->begin_id() >= 0) out.push_back(model_->begin_id());
    ControlFinder finder(controls_, text, options.contents);
    size_t at = 0;
    while (const auto found = finder.next()) {
      if (found->begin > at) encode_plain(text.substr(at, found->begin - at), out);
      out.push_back(found->id);
      at = found->end;
    }
    if (at < text.size()) encode_plain(text.substr(at), out);
  }

  std::string decode(std::span<const int64_t> ids) const override {
    std::vector<int> narrow;
    for (const int64_t id : ids) narrow.push_back(checked(id));
    std::string text;
    const std::string complaint = model_->decode(narrow, text);
    if (!complaint.empty()) fault("cannot decode {} tokens: {}", ids.size(), complaint);
    return text;
  }

  std::string bytes_of(int64_t id) const override { return model_->bytes_of(checked(id)); }
  std::string token_of(int64_t id) const override { return model_->piece(checked(id)); }
  bool is_special(int64_t id) const override { return model_->is_control(checked(id)); }
  std::optional<int64_t> id_of(std::string_view token) const override {
    const int id = model_->id_of(std::string(token));
    return id < 0 ? std::nullopt : std::optional<int64_t>(id);
  }

 private:
  void encode_plain(std::string_view text, std::vector<int32_t>& out) const {
    std::vector<int> ids;
    const std::string complaint = model_->encode(text, ids);
    if (!complaint.empty()) fault("cannot encode {} bytes of text: {}", text.size(), complaint);
    out.insert(out.end(), ids.begin(), ids.end());
  }
  int checked(int64_t id) const {
    if (id < 0 || id >= vocab()) misuse("cannot decode the id {}: this tokenizer has the ids 0 to {}", id, vocab() - 1);
    return static_cast<int>(id);
  }

  std::string serialized_;
  std::unique_ptr<PieceModel> model_;
  std::vector<ControlPiece> controls_;
};

// Iterates over a sample of the text: whole lines from equally spaced blocks, so that the sample of a sorted text has words from
// A to Z.
class SampledLines : public PieceLines {
 public:
  SampledLines(TextReader& text, int64_t sample_bytes) : text_(text) {
    const bool takes_all = text.size() <= sample_bytes;
    stride_ = takes_all ? text.size() : text.size() / kBlocks;
    block_ = takes_all ? text.size() : sample_bytes / kBlocks;
    next();
  }

  bool done() const override { return is_done_; }
  const std::string& value() const override { return line_; }

  void next() override {
    line_.clear();
    while (line_.empty() && !is_done_) read_line();
  }

 private:
  void read_line() {
    if (at_ >= block_begin_ + block_) {
      block_begin_ += stride_;
      at_ = block_begin_;
      if (at_ > 0) at_ = std::max(at_, after_line(at_ - 1));
    }
    is_done_ = at_ >= text_.size() || stride_ == 0;
    if (is_done_) return;
    const int64_t next = after_line(at_);
    const std::string_view line = text_.read(at_, std::min<int64_t>(next - at_, kLongestSentence + 1));
    line_ = line.substr(0, next_chunk(line, kLongestSentence));
    while (line_.ends_with('\n') || line_.ends_with('\r')) line_.pop_back();
    at_ = next;
  }
  // Returns the offset after the line that contains `at`, line feed included.
  int64_t after_line(int64_t at) {
    while (at < text_.size()) {
      const std::string_view part = text_.read(at, kLongestSentence);
      const size_t end = part.find('\n');
      if (end != std::string_view::npos) return at + static_cast<int64_t>(end) + 1;
      at += static_cast<int64_t>(part.size());
    }
    return at;
  }

  TextReader& text_;
  int64_t stride_, block_;
  int64_t block_begin_ = 0, at_ = 0;
  std::string line_;
  bool is_done_ = false;
};

// Returns the number after `before` in `text`, or nullopt.
std::optional<int64_t> number_after(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return std::nullopt;
  int64_t number = 0;
  const char* const first = text.data() + at + before.size();
  return std::from_chars(first, text.data() + text.size(), number).ec == std::errc() ? std::optional(number) : std::nullopt;
}

// Throws Misuse for what the library says about the number of pieces. Its own advice names options that do not exist here.
[[noreturn]] void refuse_training(const std::string& complaint, const TrainOptions& options, const std::string& name) {
  const auto least = number_after(complaint, fmt::format("required_chars. {} vs ", options.vocab));
  const auto most = number_after(complaint, "set it to a value <= ");
  if (least) {
    misuse(
        "cannot learn {} pieces from '{}': its characters alone, with 256 single bytes and the unknown piece, need {}. Give vocab "
        "= {} or more",
        options.vocab, name, *least, *least);
  }
  if (most && *most < kFewestPieces) {
    misuse(
        "cannot learn {} pieces from '{}': it has no more than {}, and {} are the fewest. Give more text, or use the byte tokenizer",
        options.vocab, name, *most, kFewestPieces);
  }
  if (most) {
    misuse("cannot learn {} pieces from '{}': it has no more than {}. Give vocab = {} or less, or more text", options.vocab, name,
           *most, *most);
  }
  misuse("cannot learn {} pieces from '{}': {}", options.vocab, name, complaint);
}

}  // namespace

std::shared_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view model, const std::string& name) {
  return std::make_shared<SentencePieceTokenizer>(model, name);
}

std::shared_ptr<Tokenizer> train_sentencepiece(std::string_view text, const TrainOptions& options, const std::string& name) {
  MemoryText whole(text);
  return train_sentencepiece(whole, options, name);
}

std::shared_ptr<Tokenizer> train_sentencepiece(TextReader& text, const TrainOptions& options, const std::string& name) {
  SampledLines lines(text, options.sample_bytes);
  if (lines.done()) misuse("cannot learn a tokenizer from '{}': it has no text", name);
  // The model has no begin, end or padding ids, because this toolkit does not use them. The library requires an unknown id; it
  // stays unused.
  const std::unordered_map<std::string, std::string> settings{
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.vocab)},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"character_coverage", "0.9999"},
      {"max_sentence_length", std::to_string(kLongestSentence)},
      {"bos_id", "-1"},
      {"eos_id", "-1"},
      {"num_threads", "2"},
      {"minloglevel", "2"},
  };
  std::string model;
  const std::string complaint = piece_library().train(settings, lines, model);
  if (!complaint.empty()) refuse_training(complaint, options, name);
  return sentencepiece_tokenizer(model, name);
}

}  // namespace zt::data
