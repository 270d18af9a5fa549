// The mask beside a token file: which tokens count as labels in the loss.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "documents.h"
#include "npy.h"
#include "token_file.h"

namespace zt::data {

// NAME.mask.npy beside NAME.npy: a number, 0 or 1, per token. Threads: const after construction. Throws: Fault for a defect of
// the file. Every method that reads numbers also throws Fault for another number than 0 and 1.
class MaskFile {
 public:
  // Throws Fault if there is no mask beside the tokens, or if it has another length or another type than uint8.
  explicit MaskFile(const TokenFile& tokens);

  const std::string& path() const { return file_.path(); }
  std::string digest() const { return file_.digest(); }
  // Reads the numbers of the tokens [first, first + out.size()) into `out`.
  void read(int64_t first, std::span<uint8_t> out) const;
  // Returns, for each document, the index in it of the first token with a 1; the document's size if there is none. Requires
  // documents that follow each other.
  std::vector<int64_t> first_labels(const std::vector<Document>& documents) const;

 private:
  [[noreturn]] void refuse(int64_t index, uint64_t number) const;

  NpyFile file_;
};

}  // namespace zt::data
