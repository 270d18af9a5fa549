// A folder of checkpoints: lists them, finds the latest, commits new ones and removes old ones.
//
//   runs/gpt/latest                      one line: step_00000200
//   runs/gpt/step_00000200/              complete: a checkpoint gets this name only after all of it is on the disk
//   runs/gpt/step_00000300.partial-4f1c  being written, or left by a run that died: never loaded, removed by collect_garbage
//   runs/gpt/step_00000100.old-77e0      complete too, until a new checkpoint of that step has its name
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::ckpt {

constexpr const char* kMaster = "checkpoint.h5";  // in a checkpoint's folder

std::string folder_name(int64_t step);  // "step_00000200"

// Returns the complete checkpoints: step -> folder name. Empty if `root` does not exist.
std::map<int64_t, std::string> complete(io::FileSystem& files, const std::string& root);

// Returns the folder name of the checkpoint that the file `latest` names. If that file is missing or names no complete
// checkpoint, returns the one of the highest step; nullopt if there is no checkpoint.
std::optional<std::string> latest(io::FileSystem& files, const std::string& root);

// Returns the folder of the checkpoint that a user means by `path`: the folder itself if it has a master file, otherwise the
// latest checkpoint in it; nullopt if there is none.
std::optional<std::string> find_checkpoint(io::FileSystem& files, const std::string& path);

// Returns the names of folders that are not complete checkpoints: partial ones, and old ones that were replaced.
std::vector<std::string> partial(io::FileSystem& files, const std::string& root);

// Returns the names of the folders in a folder, sorted. Empty if it does not exist.
std::vector<std::string> folders_in(io::FileSystem& files, const std::string& folder);
// Returns the bytes of all files in it and below it.
int64_t folder_bytes(io::FileSystem& files, const std::string& folder);

// Makes a folder, and the missing folders above it, and syncs their names to the disk.
void make_folders(io::FileSystem& files, const std::string& path);

// Makes a new folder step_N.partial-XXXX in `root`, with shards/ in it, and returns its name.
std::string begin(io::FileSystem& files, const std::string& root, int64_t step);

// Renames a written folder to its final name and makes it the latest. Returns its path. An earlier checkpoint of that step is
// renamed and stays until `retain`. A process that dies on the way leaves the earlier checkpoints or this one.
std::string commit(io::FileSystem& files, const std::string& root, const std::string& partial, int64_t step);

struct Retention {
  int64_t keep = 0;        // the number of newest checkpoints that stay; 0: all
  int64_t keep_every = 0;  // checkpoints whose step is a multiple of it stay, too; 0: none
};
// Removes replaced checkpoints and those that `retention` does not keep. Returns the steps of the latter. The latest one stays.
std::vector<int64_t> retain(io::FileSystem& files, const std::string& root, const Retention& retention);

// Removes the folders that `partial` names, and returns their names. Requires that no process saves there.
std::vector<std::string> collect_garbage(io::FileSystem& files, const std::string& root);

// Removes all checkpoints, complete or not, and `latest`.
void remove_all(io::FileSystem& files, const std::string& root);

// Calls `write`. If the disk is full, the Fault also says which files of checkpoints can be removed.
void with_disk_advice(const std::function<void()>& write);

// Removes a folder with all in it. Ignores files that are already gone.
void remove_tree(io::FileSystem& files, const std::string& path);
// The same, for use after an error: ignores errors of its own.
void discard(io::FileSystem& files, const std::string& path) noexcept;

}  // namespace zt::ckpt
