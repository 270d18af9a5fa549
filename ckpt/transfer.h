// Whole files and parts of files, above the seam: large blocks, several under way, past the page cache where that can be.
//
// Errors: Fault that names the file, what was being done, why it failed and what to do. Whatever is thrown, also by a source or a
// sink, what is under way is awaited first. Nothing is removed after an error, except by replace_file: a file that was being
// written is left as it is.
// Threads: a call is one thread's; calls on different files are independent.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fs.h"
#include "range.h"

namespace zt::ckpt {

inline constexpr int64_t kBlock = int64_t{4} << 20;  // bytes of one operation
inline constexpr int kDepth = 8;                     // operations under way

// The bytes of a file from `offset` on, as many as `scratch` has: either memory of the source's own, which stays as it is until
// write_file returns (at an address divisible by 4096 it is written as it lies, elsewhere it is copied), or `scratch`, filled.
// Called on the calling thread, for one block after the other in the order that the caller of write_file asks for.
using Source = std::function<std::span<const std::byte>(int64_t offset, std::span<std::byte> scratch)>;

// Creates the file of `bytes` bytes; afterwards its data outlasts a crash of the machine, and so does its name after sync_folder.
// The space is taken first, so a full disk is found before anything is written (where the file system can: else on the way).
// Fault if the name is taken. `source` gives the blocks from `start` on, a multiple of kBlock, then those before it: what is in
// front may depend on what follows.
void write_file(FileSystem& files, const std::string& path, int64_t bytes, const Source& source, int64_t start = 0);

// What range `index` holds; valid during the call. On the calling thread.
using Sink = std::function<void(size_t index, std::span<const std::byte> data)>;

// Gives each range once, whole, in any order. Ranges may lie anywhere and overlap; near ones are read together. Up to 32 MiB are
// under way, or one range where that is larger: ranges of 4 MiB and less are read fastest. Fault before anything is read or
// allocated if a range ends behind the file's end.
void read_ranges(FileSystem& files, const std::string& path, std::span<const Range> ranges, const Sink& sink);

// Fault when it cannot be opened.
int64_t file_bytes(FileSystem& files, const std::string& path);

// The whole file. Fault if it has more than `limit` bytes.
std::vector<std::byte> read_small(FileSystem& files, const std::string& path, int64_t limit);
// The first `bytes` of a file that has as many.
std::vector<std::byte> read_start(FileSystem& files, const std::string& path, int64_t bytes);

// Creates the file; otherwise like write_file.
void write_small(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);

// Puts a file with this content in the place of `path`: whoever reads it, also after a crash, finds the old content or the new.
// Once it has returned, the new. On the way there is a file `path`.partial, which is overwritten if a crash left one; one writer.
void replace_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);

}  // namespace zt::ckpt
