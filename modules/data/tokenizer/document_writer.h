// Writes documents: their tokens, which of these count in the loss, and where each document ends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer.h"
#include "tokens/companion.h"
#include "tokens/npy.h"
#include "zt/base/object.h"
#include "zt/io/atomic_file.h"

namespace zt::data {

// Throws Fault or Misuse if the names or the folder of a DocumentWriter's files are wrong.
void check_documents(const std::string& input, const std::string& output);

// Files, for NAME.npy: NAME.npy with the tokens (<u2, or <u4 for more than 65,536 ids); NAME.mask.npy (<u1), as long: 1 where the
// token counts as a label; NAME.offsets.npy (<i8): where each document begins, and the number of tokens; NAME.json, the
// companion; the tokenizer's file. With items also NAME.items.jsonl, one line per record.
//
// The files appear in `commit`, NAME.npy last. An old NAME.npy is removed before the files beside it are replaced: a NAME.npy
// never lies beside files of another one. Without a commit, the destructor removes what was written. Memory does not grow with
// the documents. Every method throws Fault if a file cannot be written; afterwards only `discard` and the destructor may be
// called. Methods throw Misuse after `commit` and `discard`. Threads: one at a time.
class DocumentWriter {
 public:
  enum class Items : uint8_t { none, lines };

  // The file system has to live as long as the object.
  DocumentWriter(std::shared_ptr<const Tokenizer> tokenizer, std::string output, Items items,
                 io::FileSystem& files = io::posix_files());
  ~DocumentWriter();

  // Adds a document. `counts` has a 0 or 1 per token.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> counts);
  // Adds a line to the items. Throws Misuse if the writer has none.
  void add_item(std::string_view line);
  // `companion` says where the documents come from. Its fields of the tokens and of the tokenizer are set here. Throws Misuse if
  // no document was added.
  void commit(Companion companion);
  // Removes what was written. Does nothing after a commit.
  void discard();

 private:
  struct Files;

  Files& open_files() const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::string output_;
  io::FileSystem& files_;
  std::unique_ptr<Files> open_;  // null after commit and discard
};

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::DocumentWriter)
}
