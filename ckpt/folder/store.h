// A folder of checkpoints: which there are, which is the latest, and which may go.
//
//   runs/gpt/latest                      a line: step_00000200
//   runs/gpt/step_00000200/              complete: it has this name only since all of it is on the disk
//   runs/gpt/step_00000300.partial-4f1c  being written, or left by a run that died: never loaded, removed by collect_garbage
//   runs/gpt/step_00000100.old-77e0      complete too, while a new one of that step takes its place
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

// The complete checkpoints: folder names by step. Empty when there is no such folder.
std::map<int64_t, std::string> complete(io::FileSystem& files, const std::string& root);

// The folder name that `latest` says; where that file is missing or names none that is there, the one of the highest step.
// nullopt: there is none.
std::optional<std::string> latest(io::FileSystem& files, const std::string& root);

// The folder of the checkpoint that somebody means by `path`: this folder if it has a master file, else that of the latest one in
// it.
std::optional<std::string> find_checkpoint(io::FileSystem& files, const std::string& path);

// Names of folders that are there for a checkpoint and are none: partial ones, and old ones that were replaced.
std::vector<std::string> partial(io::FileSystem& files, const std::string& root);

// Names of the folders in a folder, sorted. Empty when it is not there.
std::vector<std::string> folders_in(io::FileSystem& files, const std::string& folder);
// Bytes of all files in it.
int64_t folder_bytes(io::FileSystem& files, const std::string& folder);

// A folder and those above it, where they are missing; their names outlast a crash.
void make_folders(io::FileSystem& files, const std::string& path);

// A new folder step_N.partial-XXXX in root, with shards/ in it; its name.
std::string begin(io::FileSystem& files, const std::string& root, int64_t step);

// Gives a written folder its name, takes the place of an earlier checkpoint of that step, which stays until `retain`, and makes
// it the latest. Whoever dies on the way leaves the earlier checkpoints or this one.
std::string commit(io::FileSystem& files, const std::string& root, const std::string& partial, int64_t step);

struct Retention {
  int64_t keep = 0;        // how many of the newest stay; 0: all
  int64_t keep_every = 0;  // those of steps that are multiples of it stay besides; 0: none
};
// Removes what may go: checkpoints that were replaced, and those that `retention` does not keep. Returns the latter's steps.
std::vector<int64_t> retain(io::FileSystem& files, const std::string& root, const Retention& retention);

// Removes what `partial` names, and returns it. Not while somebody saves there.
std::vector<std::string> collect_garbage(io::FileSystem& files, const std::string& root);

// Removes all checkpoints, complete or not, and `latest`.
void remove_all(io::FileSystem& files, const std::string& root);

// Calls `write`. If that ends because the disk is full, the error also says which files of checkpoints can be removed.
void with_disk_advice(const std::function<void()>& write);

// Removes a folder with all in it. What vanishes on the way is no error.
void remove_tree(io::FileSystem& files, const std::string& path);
// The same after an error that is more worth telling than its own.
void discard(io::FileSystem& files, const std::string& path) noexcept;

}  // namespace zt::ckpt
