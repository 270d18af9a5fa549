// The first 512 bytes of a master file: text with the file's kind, version, size and checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace zt::ckpt {

constexpr int64_t kUserBlock = 512;
constexpr int kFormatMajor = 1, kFormatMinor = 2;
// Minor version since which groups are compact (see hdf5/tree.h) and the checksum covers the version.
constexpr int kCompactSince = 2;

// Returns the user block of a file of version kFormatMajor.`minor` whose other bytes are `rest`.
std::string make_user_block(std::span<const std::byte> rest, int minor = kFormatMinor);
// Checks kind, version and size from the start of a file of `size` bytes: its first kUserBlock bytes, or all of a shorter file.
// Throws a Fault, without the file's name, if one of them is wrong.
void check_file_start(std::span<const std::byte> start, int64_t size);
// Returns the file's minor version. Throws a Fault, without the file's name, unless the file is a complete master file of a
// version that can be read.
int check_user_block(std::span<const std::byte> file);

}  // namespace zt::ckpt
