// Tests the machine's own file systems: a folder with direct I/O, /dev/shm, and processes in which some system calls fail.
#include "zt/io/posix_fs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "content.h"
#include "folder.h"
#include "support/message.h"
#include "system_calls.h"

namespace zt::io {

namespace {

const std::vector<int64_t> kSizes{0, 1, 4095, 4096, kBlock + 1, 10 * kBlock + 4097};

void round_trips(FileSystem& files, const std::string& folder) {
  for (const int64_t size : kSizes) {
    SCOPED_TRACE(size);
    const Bytes bytes = content(size);
    const std::string path = folder + "/file" + std::to_string(size);
    write_file(files, path, size, copying(bytes));
    EXPECT_EQ(std::filesystem::file_size(path), static_cast<uintmax_t>(size));
    EXPECT_EQ(read_whole(files, path), bytes);
    const std::vector<FileRange> ranges{{0, size}, {size / 3, size / 2}, {size, 0}, {size - size / 7, size / 7}, {size / 5, 0}};
    EXPECT_EQ(read_all(files, path, ranges), parts(bytes, ranges));
    replace_file(files, folder + "/latest", bytes);
    EXPECT_EQ(read_whole(files, folder + "/latest"), bytes);
  }
}

class PosixFolders : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (access(GetParam().c_str(), W_OK) != 0) GTEST_SKIP() << GetParam() << " cannot be written to";
  }
};

INSTANTIATE_TEST_SUITE_P(Posix, PosixFolders, testing::Values(".", "/tmp", "/dev/shm"));

TEST_P(PosixFolders, RoundTrips) {
  const TestFolder folder(GetParam());
  PosixFs files({});
  round_trips(files, folder.path());
}

TEST_P(PosixFolders, ThreadsWriteAndReadTheirOwnFiles) {
  const TestFolder folder(GetParam());
  PosixFs files({});
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const Bytes bytes = content(3 * kBlock + 10, i);
      const std::string path = folder.path() + "/" + std::to_string(i);
      write_file(files, path, 3 * kBlock + 10, lending(bytes));
      EXPECT_EQ(read_all(files, path, {{0, 3 * kBlock + 10}}).front(), bytes);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(PosixFs, UsesDirectIo) {
  const TestFolder folder(".");
  PosixFs files({});
  const auto file = files.open(folder.path() + "/file", {Access::create, Caching::direct, 8}).file;
  if (file->alignment() == 1) GTEST_SKIP() << "the file system of the build folder has no direct I/O";
  EXPECT_EQ(file->alignment(), 4096);
  std::array<std::byte, 8192> memory{};
  std::byte* odd = memory.data() + (reinterpret_cast<uintptr_t>(memory.data()) % 2 == 0 ? 1 : 0);
  file->submit({IoDirection::write, 0, odd, 4096, 3});
  const Completion done = file->wait();
  EXPECT_EQ(done.tag, 3);
  EXPECT_EQ(done.result, -EINVAL);  // a cached write would accept this address
}

TEST(PosixFs, NamesKindsAndErrors) {
  const TestFolder folder(".");
  const std::string at = folder.path() + "/";
  PosixFs files({});
  EXPECT_EQ(files.make_folder(at + "a"), 0);
  EXPECT_EQ(files.make_folder(at + "a"), -EEXIST);
  EXPECT_EQ(files.make_folder(at + "x/y"), -ENOENT);
  write_small(files, at + "a/file", content(10));
  std::filesystem::create_symlink("a", at + "link");
  EXPECT_EQ(files.kind_of(at + "a"), EntryKind::folder);
  EXPECT_EQ(files.kind_of(at + "a/file"), EntryKind::file);
  EXPECT_EQ(files.kind_of(at + "link"), EntryKind::folder);
  EXPECT_EQ(files.kind_of(at + "none"), EntryKind::missing);
  EXPECT_EQ(files.kind_of("/dev/null"), EntryKind::device);
  ASSERT_EQ(mkfifo((at + "fifo").c_str(), 0600), 0);
  EXPECT_EQ(files.kind_of(at + "fifo"), EntryKind::fifo);
  EXPECT_EQ(files.remove(at + "fifo"), 0);
  auto [entries, error] = files.list(folder.path());
  EXPECT_EQ(error, 0);
  std::ranges::sort(entries, {}, &Entry::name);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(entries[0].name == "a" && entries[0].kind == EntryKind::folder);
  EXPECT_TRUE(entries[1].name == "link" && entries[1].kind == EntryKind::other);
  EXPECT_EQ(files.list(at + "none").error, -ENOENT);
  EXPECT_EQ(files.list(at + "a/file").error, -ENOTDIR);
  EXPECT_EQ(files.open(at + "a/file", {Access::create}).error, -EEXIST);
  EXPECT_EQ(files.open(at + "none", {}).error, -ENOENT);
  EXPECT_EQ(files.remove(at + "a"), -ENOTEMPTY);
  EXPECT_EQ(files.rename(at + "a", at + "b"), 0);
  EXPECT_EQ(files.sync_folder(folder.path()), 0);
  EXPECT_EQ(files.sync_folder(at + "none"), -ENOENT);
  EXPECT_EQ(files.remove(at + "b/file"), 0);
  EXPECT_EQ(files.remove(at + "b"), 0);
  EXPECT_GT(files.free_bytes(folder.path()), 0);
  EXPECT_EQ(files.free_bytes(at + "none"), -ENOENT);
}

TEST(PosixFs, ATruncatedFileIsAFault) {
  const TestFolder folder(".");
  const std::string path = folder.path() + "/file";
  PosixFs files({});
  write_file(files, path, 100000, copying(content(100000)));
  std::filesystem::resize_file(path, 99999);
  const std::string said = test::message_of<Fault>([&] { read_all(files, path, {{0, 100000}}); });
  EXPECT_CONTAINS(said, "'" + path + "' is truncated");
}

constexpr const char* kUringLine =
    "io_uring is refused here .Operation not permitted.: files are read and written by one operation";
constexpr const char* kDirectLine = "has no direct I/O: its files are read and written through the page cache";

// Returns a pattern that matches exactly one line of output, which contains `line`.
std::string once(const std::string& line) {
  return "^[^\n]*" + line + "[^\n]*\n$";
}

TEST(PosixFsDeathTest, WithoutUring) {
  const TestFolder folder(".");
  EXPECT_EXIT(in_child([&] {
                refuse(__NR_io_uring_setup, EPERM);
                PosixFs files({});
                round_trips(files, folder.path());
              }),
              testing::ExitedWithCode(0), once(kUringLine));
}

TEST(PosixFsDeathTest, WithoutDirectIo) {
  const TestFolder folder(".");
  EXPECT_EXIT(in_child([&] {
                refuse(__NR_fcntl, EINVAL, 2, O_DIRECT);
                PosixFs files({});
                round_trips(files, folder.path());
              }),
              testing::ExitedWithCode(0), once(kDirectLine));
}

TEST(PosixFsDeathTest, WithoutEither) {
  const TestFolder folder(".");
  EXPECT_EXIT(in_child([&] {
                refuse(__NR_io_uring_setup, ENOSYS);
                refuse(__NR_fcntl, EINVAL, 2, O_DIRECT);
                PosixFs files({});
                round_trips(files, folder.path());
              }),
              testing::ExitedWithCode(0),
              std::string(kDirectLine) + "(.|\n)*io_uring is refused here .Function not implemented.");
}

bool write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  return static_cast<bool>(file << text << std::flush);
}

// Mounts a file system of 6 MiB that only this process sees. Needs no root where the kernel allows user namespaces. Returns
// whether it succeeded.
bool mount_small_disk(const std::string& folder) {
  const uid_t user = getuid();
  const gid_t group = getgid();
  return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/uid_map", fmt::format("0 {} 1", user)) &&
         write_text("/proc/self/gid_map", fmt::format("0 {} 1", group)) &&
         mount("io", folder.c_str(), "tmpfs", 0, "size=6m") == 0;
}

// Ends the process: with 2 if no small disk can be mounted, else as in_child does.
[[noreturn]] void fill_small_disk(const std::string& folder) {
  if (!mount_small_disk(folder)) _exit(2);
  in_child([&] {
    PosixFs files({});
    const Bytes bytes = content(2 * kBlock);
    write_small(files, folder + "/kept", content(1 << 20));
    const std::string said = test::message_of<Fault>([&] { write_file(files, folder + "/file", 2 * kBlock, copying(bytes)); });
    EXPECT_CONTAINS(said,
                    "cannot reserve space for '" + folder + "/file': No space left on device: 8.0 MiB are needed and 5.0 MiB");
    EXPECT_EQ(files.remove(folder + "/file"), 0);
    const std::string replacing = test::message_of<Fault>([&] { replace_file(files, folder + "/kept", bytes); });
    EXPECT_CONTAINS(replacing, "cannot write '" + folder + "/kept': No space left on device: 8.0 MiB are needed");
    EXPECT_EQ(files.kind_of(folder + "/kept.partial"), EntryKind::missing);
    EXPECT_EQ(read_whole(files, folder + "/kept"), content(1 << 20));
    write_file(files, folder + "/file", kBlock, lending(std::span(bytes).first(kBlock)));
  });
}

TEST(PosixFs, AFullDisk) {
  const TestFolder folder(".");
  const pid_t child = fork();
  if (child == 0) fill_small_disk(folder.path());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this user may not mount a small file system";
  EXPECT_EQ(status, 0);
}

}  // namespace

}  // namespace zt::io
