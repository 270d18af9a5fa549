#include "outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "zt/base/error.h"
#include "zt/io/atomic_file.h"
#include "zt/io/io_errors.h"

namespace zt::data {

void check_outputs(const std::string& input, const std::string& output, std::span<const char* const> endings) {
  const std::string folder = io::folder_of(output);
  if (!std::filesystem::is_directory(folder))
    misuse("cannot write '{}': there is no folder '{}': make it first (mkdir -p)", output, folder);
  if (access(folder.c_str(), W_OK | X_OK) != 0) misuse("cannot write '{}': {}: {}", output, folder, std::strerror(errno));
  for (const char* ending : endings) {
    const std::string path = beside(output, ending);
    std::error_code error;
    const auto kind = std::filesystem::status(path, error).type();
    if (kind == std::filesystem::file_type::not_found) continue;
    if (kind != std::filesystem::file_type::regular) {
      misuse("cannot write '{}': something that is not a regular file has that name. Give another output", path);
    }
    if (std::filesystem::equivalent(path, input, error)) {
      misuse("writing '{}' would replace the text '{}': give another output", path, input);
    }
  }
}

NpyType token_type(const Tokenizer& tokenizer) {
  return tokenizer.vocab() <= 65536 ? NpyType::u16 : NpyType::u32;
}

void write_companions(const Tokenizer& tokenizer, const std::string& output, Companion companion, io::FileSystem& files) {
  if (const std::string& model = tokenizer.model(); !model.empty()) {
    const std::string path = beside(output, model_extension(tokenizer));
    io::replace_file(files, path, std::as_bytes(std::span(model)));
    companion.model = std::filesystem::path(path).filename();
    companion.model_hash = content_hash(model);
  }
  const std::string text = companion_text(companion);
  io::replace_file(files, beside(output, ".json"), std::as_bytes(std::span(text)));
}

}  // namespace zt::data
