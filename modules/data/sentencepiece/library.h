// The sentencepiece library, behind an interface of its own: libzt_sentencepiece.so implements it, and no other file of ours
// names sentencepiece.
//
// The reason: libsentencepiece and LibTorch's libc10 both define the variable FLAGS_minloglevel, with other types. Where both are
// in one scope of symbols, the constructor of the first writes 32 bytes over c10's 4 and what follows them. Among these is the
// switch that makes c10 abort the process instead of throwing, for example if there is no memory for a tensor. So this library
// links to sentencepiece only, and is opened with RTLD_DEEPBIND: its symbols then come before those of the process.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace zt::data {

// A loaded model. Threads: const methods from any. Methods that return a string return the library's complaint; empty: success.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual int pieces() const = 0;
  virtual std::string encode(std::string_view text, std::vector<int>& ids) const = 0;
  virtual std::string decode(const std::vector<int>& ids, std::string& text) const = 0;
  // Returns the bytes that a piece adds to a text; empty for one that stands for no text.
  virtual std::string bytes_of(int id) const = 0;
  virtual int id_of(const std::string& piece) const = 0;  // -1: there is no such piece
  virtual std::string piece(int id) const = 0;
  virtual bool is_control(int id) const = 0;  // stands for no text, such as "<s>"
  virtual int begin_id() const = 0;           // the control piece of a text's beginning; -1: there is none
};

// The lines from which a model is learnt.
class PieceLines {
 public:
  virtual ~PieceLines() = default;
  virtual bool done() const = 0;
  virtual const std::string& value() const = 0;
  virtual void next() = 0;
};

struct PieceLibrary {
  // Returns the model in `serialized`, the content of a .model file; or null, and sets `complaint`.
  std::unique_ptr<PieceModel> (*load)(std::string_view serialized, std::string& complaint);
  // Learns a model by sentencepiece's options and sets `serialized`. Returns the complaint.
  std::string (*train)(const std::unordered_map<std::string, std::string>& options, PieceLines& lines, std::string& serialized);
};

// The one function that libzt_sentencepiece.so exports.
constexpr const char* kPieceLibraryFunction = "zt_piece_library";
using PieceLibraryFunction = const PieceLibrary& (*)();

}  // namespace zt::data
