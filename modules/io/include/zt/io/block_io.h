// Reads and writes large files in blocks of 4 MiB, several at once, by direct I/O where the file system supports it.
//
// Every function throws Fault when the file system fails: the message names the file, the action, the reason and what to do.
// Before any exception leaves a function, also one that a BlockSource or a Sink threw, the operations under way are awaited.
// After an error the part of a file that was written stays on the disk; the caller removes it. Threads: a call runs on the
// calling thread. Calls on different files may run at the same time.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::io {

// The bytes [offset, offset + bytes).
struct FileRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Returns the non-empty parts of [0, bytes) that no range in `taken` covers, in ascending order.
// Requires that the ranges in `taken` lie within [0, bytes) and do not overlap.
std::vector<FileRange> gaps_between(std::vector<FileRange> taken, int64_t bytes);

inline constexpr int64_t kBlock = int64_t{4} << 20;  // bytes of one operation
inline constexpr int kDepth = 8;                     // operations under way at once

// Returns the bytes of the file that begin at `offset`, as many as `scratch` has. The source either fills `scratch` and returns
// it, or returns memory of its own, which must stay unchanged until write_file returns. Such memory is written without a copy if
// its address and its size are multiples of 4096. write_file calls the source on the calling thread, once per block, in the order
// that its argument `start` gives.
using BlockSource = std::function<std::span<const std::byte>(int64_t offset, std::span<std::byte> scratch)>;

// Creates the file `path` of `bytes` bytes and syncs its content. Its name survives a crash of the machine only after a
// sync_folder of its folder. Disk space is reserved first where the file system can do so, to find a full disk before anything is
// written. The blocks from offset `start` (a multiple of kBlock) to the end are written first, then those before `start`: the
// first blocks may depend on the later ones.
// Throws: Fault, also if the name exists. Misuse if `source` returns more or fewer bytes than `scratch` has.
void write_file(FileSystem& files, const std::string& path, int64_t bytes, const BlockSource& source, int64_t start = 0);

// Receives the content of ranges[index]. `data` is valid during the call only.
using Sink = std::function<void(size_t index, std::span<const std::byte> data)>;

// Reads `ranges` of the file. Passes each range, complete, to `sink` once, in any order and on the calling thread. Ranges may
// have any alignment and may overlap. Ranges that lie at most 64 KiB apart are read by one operation of up to 4 MiB. The
// operations under way hold about 32 MiB of data at most. A range larger than 4 MiB is read by one operation of its own size.
// Fewer operations then run at once, so smaller ranges are faster. A range above 32 MiB is read alone. Throws: Fault, before
// anything is read, if a range ends after the end of the file. Misuse for a negative offset or length.
void read_ranges(FileSystem& files, const std::string& path, std::span<const FileRange> ranges, const Sink& sink);

}  // namespace zt::io
