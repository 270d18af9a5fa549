// The first 512 bytes of a master file: text that says what it is and whether it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace zt::ckpt {

constexpr int64_t kUserBlock = 512;
constexpr int kFormatMajor = 1, kFormatMinor = 1;

// The user block for a file whose bytes after it are `rest`.
std::string make_user_block(std::span<const std::byte> rest);
// Checks what can be known from the first kUserBlock bytes of a file (all of a shorter one) of `size` bytes, before it is read.
// Throws: Fault, without the file's name, for another kind of file, version or size.
void check_file_start(std::span<const std::byte> start, int64_t size);
// Fault, without the file's name, unless the file is a whole master file of a version that can be read.
void check_user_block(std::span<const std::byte> file);

}  // namespace zt::ckpt
