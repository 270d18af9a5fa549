// Tests a file that stays open and is read in parts.
#include "zt/io/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "content.h"
#include "faults/fault_fs.h"
#include "faults/outcome.h"
#include "folder.h"
#include "support/message.h"

namespace zt::io {

namespace {

std::string read(const InputFile& file, int64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(InputFile, ReadsParts) {
  const TestFolder folder;
  const InputFile file(folder.put("file", "0123456789"));
  EXPECT_EQ(file.path(), folder / "file");
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(read(file, 0, 10), "0123456789");
  EXPECT_EQ(read(file, 7, 3), "789");
  EXPECT_EQ(read(file, 10, 0), "");
  EXPECT_EQ(read_file(folder / "file"), "0123456789");
  EXPECT_EQ(read_file(folder.put("empty", "")), "");
}

TEST(InputFile, ThreadsShareIt) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 10000; ++i) text += std::to_string(i) + " ";
  const InputFile file(folder.put("file", text));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t at = t; at + 100 < text.size(); at += 397)
        EXPECT_EQ(read(file, static_cast<int64_t>(at), 100), text.substr(at, 100));
    });
  }
  for (auto& thread : threads) thread.join();
}

// A blocking open of a FIFO without a writer would wait forever.
TEST(InputFile, RefusesEverythingButARegularFile) {
  const TestFolder folder;
  const auto refusal = [](const std::string& path) { return test::message_of<Fault>([&] { InputFile file(path); }); };
  EXPECT_CONTAINS(refusal("/nowhere/file"), "cannot open '/nowhere/file': No such file or directory: check the path");
  EXPECT_CONTAINS(refusal("/"), "cannot open '/': it is a folder, not a regular file");
  EXPECT_CONTAINS(refusal("/dev/null"), "'/dev/null': it is a device, not a regular file");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_CONTAINS(refusal(folder / "fifo"), "fifo': it is a FIFO, not a regular file");
}

TEST(InputFile, SaysThatTheFileWasTruncatedWhileItWasOpen) {
  const TestFolder folder;
  const std::string path = folder.put("file", std::string(10000, 'x'));
  const InputFile file(path);
  std::filesystem::resize_file(path, 5000);
  EXPECT_EQ(read(file, 4000, 1000), std::string(1000, 'x'));
  for (const int64_t offset : {4500, 5000, 9000}) {
    const std::string said = test::message_of<Fault>([&] { read(file, offset, 1000); });
    EXPECT_CONTAINS(said, "'" + path + "' was truncated while it was in use: bytes ");
  }
}

TEST(InputFile, FaultsAtEveryCall) {
  using What = Trouble::What;
  const Bytes bytes = content(20000);
  for (const auto& [trouble, expected] : {std::pair{Trouble{What::error, 0, EIO}, Outcome::fault},
                                          {Trouble{What::error, 0, EINTR}, Outcome::done},
                                          {Trouble{What::error, 0, EAGAIN}, Outcome::done},
                                          {Trouble{What::short_count}, Outcome::done},
                                          {Trouble{What::death}, Outcome::death}}) {
    for (int64_t k = 0;; ++k) {
      FaultFs files;
      write_small(files, "file", bytes);
      Trouble here = trouble;
      here.call = k;
      files.plan(here);
      Bytes got(bytes.size());
      const Outcome outcome = outcome_of([&] {
        const InputFile file("file", files);
        file.read(0, got);
      });
      if (k >= static_cast<int64_t>(files.calls().size())) break;
      EXPECT_EQ(outcome, expected) << files.calls()[static_cast<size_t>(k)];
      EXPECT_TRUE(outcome != Outcome::done || got == bytes);
    }
  }
}

TEST(InputFile, WholeFilesHaveALimit) {
  const TestFolder folder;
  const std::string path = folder.put("huge", "");
  std::filesystem::resize_file(path, (uintmax_t{1} << 30) + 1);
  EXPECT_CONTAINS(test::message_of<Fault>([&] { read_file(path); }), "where at most 1073741824 are expected");
}

}  // namespace

}  // namespace zt::io
