#include "library.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace zt::data {

namespace {

constexpr std::string_view kSpace = "\u2581";  // stands for a space in pieces

// Returns the library's error text without its source location: "Internal: ./src/x.cc(66) [a == b] Text." -> "Text".
std::string complaint_of(const sentencepiece::util::Status& status) {
  if (status.ok()) return "";
  std::string text = status.error_message();
  const size_t condition = text.rfind(']');
  if (condition != std::string::npos) text.erase(0, condition + 1);
  text.erase(0, text.find_first_not_of(' '));
  while (text.ends_with('.')) text.pop_back();
  return text.empty() ? "it cannot be parsed" : text;
}

class SentencepieceModel : public PieceModel {
 public:
  std::string load(std::string_view serialized) { return complaint_of(processor_.LoadFromSerializedProto(serialized)); }
  int pieces() const override { return processor_.GetPieceSize(); }
  std::string encode(std::string_view text, std::vector<int>& ids) const override {
    return complaint_of(processor_.Encode(text, &ids));
  }
  std::string decode(const std::vector<int>& ids, std::string& text) const override {
    return complaint_of(processor_.Decode(ids, &text));
  }
  std::string bytes_of(int id) const override {
    if (processor_.IsControl(id) || processor_.IsUnknown(id) || processor_.IsUnused(id)) return "";
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // "<0x0A>"
    std::string bytes;
    for (size_t at = 0; at < piece.size();) {
      const bool is_space = std::string_view(piece).substr(at).starts_with(kSpace);
      bytes += is_space ? ' ' : piece[at];
      at += is_space ? kSpace.size() : 1;
    }
    return bytes;
  }
  int id_of(const std::string& piece) const override {
    const int id = processor_.PieceToId(piece);
    return processor_.IsUnknown(id) && processor_.IdToPiece(id) != piece ? -1 : id;
  }
  std::string piece(int id) const override { return processor_.IdToPiece(id); }
  bool is_control(int id) const override { return processor_.IsControl(id); }
  int begin_id() const override { return processor_.bos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(PieceLines& lines) : lines_(lines) {}
  bool done() const override { return lines_.done(); }
  const std::string& value() const override { return lines_.value(); }
  void Next() override { lines_.next(); }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  PieceLines& lines_;
};

std::unique_ptr<PieceModel> load(std::string_view serialized, std::string& complaint) {
  auto model = std::make_unique<SentencepieceModel>();
  complaint = model->load(serialized);
  if (complaint.empty()) return model;
  return nullptr;
}

std::string train(const std::unordered_map<std::string, std::string>& options, PieceLines& lines, std::string& serialized) {
  Sentences sentences(lines);
  return complaint_of(sentencepiece::SentencePieceTrainer::Train(options, &sentences, &serialized));
}

}  // namespace

}  // namespace zt::data

extern "C" __attribute__((visibility("default"))) const zt::data::PieceLibrary& zt_piece_library() {
  static const zt::data::PieceLibrary library{zt::data::load, zt::data::train};
  return library;
}
