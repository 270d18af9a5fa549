// Reads and writes large files in blocks of 4 MiB, with several operations under way, by direct I/O where the file system has it.
//
// Every function throws Fault when the file system fails: the message names the file, the action, the reason and what to do.
// Whatever is thrown, also by a Source or a Sink, the operations under way are awaited first. After an error the written part of
// a file stays where it is; the caller removes it. Threads: a call runs on the calling thread. Calls on different files may run
// at the same time.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "zt/io/file_system.h"
#include "zt/io/range.h"

namespace zt::io {

inline constexpr int64_t kBlock = int64_t{4} << 20;  // bytes of one operation
inline constexpr int kDepth = 8;                     // operations under way at once

// Returns the bytes of the file that begin at `offset`, as many as `scratch` has. The source either fills `scratch` and returns
// it, or returns memory of its own, which must stay unchanged until write_file returns. Such memory is written without a copy if
// its address is a multiple of 4096. write_file calls it on the calling thread, once per block, in the order that `start`
// implies.
using Source = std::function<std::span<const std::byte>(int64_t offset, std::span<std::byte> scratch)>;

// Creates the file `path` of `bytes` bytes and syncs its content. Its name survives a crash of the machine after sync_folder of
// its folder. Disk space is reserved first where the file system can do so; a full disk is then found before anything is written.
// The blocks from offset `start` (a multiple of kBlock) to the end are written first, then those before `start`: the first blocks
// may depend on the later ones.
// Throws: Fault, also if the name exists. Misuse if `source` returns another number of bytes.
void write_file(FileSystem& files, const std::string& path, int64_t bytes, const Source& source, int64_t start = 0);

// Receives the content of ranges[index]. `data` is valid during the call only.
using Sink = std::function<void(size_t index, std::span<const std::byte> data)>;

// Reads `ranges` of the file and passes each of them, complete, to `sink` once, in any order and on the calling thread. Ranges
// may have any alignment and may overlap. Ranges that lie less than 64 KiB apart are read by one operation. The operations under
// way need up to 32 MiB of memory; a range larger than 4 MiB is read by one operation of its own size, so smaller ranges are
// faster. Throws: Fault, before anything is read, if a range ends after the end of the file. Misuse for a negative offset or
// length.
void read_ranges(FileSystem& files, const std::string& path, std::span<const Range> ranges, const Sink& sink);

}  // namespace zt::io
