#include "user_block.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "zt/base/error.h"
#include "zt/io/hash.h"

namespace zt::ckpt {

namespace {

constexpr std::string_view kMagic = "ztoolkit checkpoint ";
constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";

std::string user_block(int major, int minor, int64_t bytes, uint64_t checksum) {
  std::string text = fmt::format("{}{}.{}\nbytes {:020}\nxxh3 {:016x}\n", kMagic, major, minor, bytes, checksum);
  text += "The rest is an HDF5 file: h5ls -r, h5dump and h5py read it, as it lies in its folder.\n";
  text.resize(kUserBlock - 1, ' ');
  return text + '\n';
}

struct Version {
  int major = 0, minor = 0;
};

// Reads a version such as "1.0\n" at the start of `text`. Throws a Fault if there is none.
Version parse_version(std::string_view text) {
  Version version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  const bool has_point = major.ec == std::errc() && major.ptr < end && *major.ptr == '.';
  const auto minor = has_point ? std::from_chars(major.ptr + 1, end, version.minor) : major;
  const bool is_whole = has_point && minor.ec == std::errc() && minor.ptr < end && *minor.ptr == '\n';
  if (!is_whole || version.major < 0 || version.minor < 0) fault("its first line has no format version");
  return version;
}

// Since 1.2 the minor version is part of the checksum, so that a changed digit of it is noticed.
uint64_t checksum_of(std::span<const std::byte> rest, int minor) {
  return io::xxh3(rest) ^ static_cast<uint64_t>(minor < kCompactSince ? 0 : minor);
}

std::string_view text_of(std::span<const std::byte> file) {
  return {reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), kUserBlock)};
}

}  // namespace

std::string make_user_block(std::span<const std::byte> rest, int minor) {
  return user_block(kFormatMajor, minor, kUserBlock + static_cast<int64_t>(rest.size()), checksum_of(rest, minor));
}

void check_file_start(std::span<const std::byte> start, int64_t size) {
  const std::string_view text = text_of(start);
  if (text.starts_with(kHdf5)) fault("it is an HDF5 file of another program: it lacks the first line of a checkpoint");
  if (!text.starts_with(kMagic)) fault("it does not begin like a checkpoint's master file");
  const Version version = parse_version(text.substr(kMagic.size()));
  if (version.major != kFormatMajor)
    fault("its format is {}.{}, and this program reads {}.x", version.major, version.minor, kFormatMajor);
  if (text.size() < kUserBlock) fault("it is cut short inside its first {} bytes", kUserBlock);
  const size_t place = text.find("\nbytes ");
  int64_t bytes = -1;
  if (place != std::string_view::npos) std::from_chars(text.data() + place + 7, text.data() + text.size(), bytes);
  if (bytes != size) fault("it has {} bytes, and its first lines say {}", size, bytes);
}

int check_user_block(std::span<const std::byte> file) {
  const auto size = static_cast<int64_t>(file.size());
  check_file_start(file, size);
  const std::string_view text = text_of(file);
  const Version version = parse_version(text.substr(kMagic.size()));
  const uint64_t checksum = checksum_of(file.subspan(kUserBlock), version.minor);
  if (text == user_block(version.major, version.minor, size, checksum)) return version.minor;
  fault("its bytes do not fit its checksum (they hash to {:016x})", checksum);
}

}  // namespace zt::ckpt
