// Tests files that appear complete or not at all, on the machine's file system and on the one that injects faults.
#include "zt/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "content.h"
#include "faults/fault_fs.h"
#include "folder.h"
#include "support/message.h"
#include "zt/io/io_errors.h"

namespace zt::io {

namespace {

TEST(AtomicFile, AppendsAndOverwrites) {
  const TestFolder folder;
  AtomicFile file(folder / "file");
  file.append("12345");
  file.append("678");
  file.append("");
  file.overwrite(1, "ab");
  file.commit();
  EXPECT_EQ(folder.read("file"), "1ab45678");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, HasNoNameBeforeCommit) {
  const TestFolder folder;
  folder.put("file", "old");
  {
    AtomicFile file(folder / "file");
    file.append("new");
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"file", "file.partial"}));
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"}) << "the destructor removes the partial file";
  EXPECT_EQ(folder.read("file"), "old");
}

TEST(AtomicFile, ReusesThePartialFileOfAKilledProcess) {
  const TestFolder folder;
  folder.put("file.partial", std::string(1000, 'x'));
  replace_file(folder / "file", "new");
  EXPECT_EQ(folder.read("file"), "new");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, ASecondWriterWaitsForTheFirst) {
  const TestFolder folder;
  auto first = std::make_unique<AtomicFile>(folder / "file");
  first->append("first");
  std::thread second([&] { replace_file(folder / "file", "second"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  first->commit();
  second.join();
  EXPECT_EQ(folder.read("file"), "second");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, ASecondWriterDoesNotWaitForEver) {
  const TestFolder folder;
  AtomicFile first(folder / "file");
  EXPECT_CONTAINS(test::message_of<Fault>([&] { AtomicFile second(folder / "file"); }),
                  "cannot write '" + (folder / "file") + "': another process is writing it at the moment. Wait for it");
  first.append("first");
  first.commit();
  EXPECT_EQ(folder.read("file"), "first");
}

TEST(AtomicFile, ManyWritersLeaveOneOfTheirContents) {
  const TestFolder folder;
  std::vector<std::thread> threads;
  for (char c = 'a'; c < 'i'; ++c) {
    threads.emplace_back([&, c] {
      for (int i = 0; i < 5; ++i) replace_file(folder / "file", std::string(10000, c));
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string content = folder.read("file");
  EXPECT_EQ(content, std::string(10000, content.at(0)));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, SaysWhyItCannotBeWritten) {
  const TestFolder folder;
  EXPECT_CONTAINS(test::message_of<Fault>([] { AtomicFile file("/nowhere/file"); }),
                  "cannot write '/nowhere/file': No such file or directory: check the path. Make the folder first");
  std::filesystem::create_directories(folder / "target/inside");
  EXPECT_CONTAINS(test::message_of<Fault>([&] { replace_file(folder / "target", "text"); }),
                  "cannot write '" + (folder / "target") + "': Is a directory: choose another name");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"target"});
  ASSERT_EQ(mkfifo((folder / "pipe.partial").c_str(), 0600), 0);
  EXPECT_CONTAINS(test::message_of<Fault>([&] { AtomicFile file(folder / "pipe"); }),
                  "'" + (folder / "pipe.partial") + "', its name until it is complete, is a FIFO. Remove that");
}

// A limit of the file size stops the write halfway, as a full disk does.
TEST(AtomicFile, AWriteThatFailsHalfwayKeepsTheOldFile) {
  const TestFolder folder;
  folder.put("file", "old");
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string said = test::message_of<Fault>([&] { replace_file(folder / "file", std::string(100000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_CONTAINS(said, "cannot write '" + (folder / "file") + "': File too large: ");
  EXPECT_EQ(folder.read("file"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, AFullDiskHasAnErrorOfItsOwn) {
  FaultFs files({.capacity = 3 << 20});
  write_small(files, "file", content(1 << 20));
  EXPECT_THROW(replace_file(files, "file", content(5 << 20)), DiskFull);
  EXPECT_EQ(read_whole(files, "file"), content(1 << 20));
  EXPECT_EQ(files.kind_of("file.partial"), EntryKind::missing);
  EXPECT_EQ(test::message_of<Fault>([&] { replace_file(files, "file", content(5 << 20)); }),
            "cannot write 'file': No space left on device: 5.0 MiB are needed and 0 B are free. Free some space or choose "
            "another disk, and run this again");
}

TEST(AtomicFile, IsDurableAsAsked) {
  FaultFs files;
  for (const Durability durability : {Durability::process_crash, Durability::machine_crash}) {
    AtomicFile file("file", files);
    file.append("text");
    file.commit(durability);
    const bool survives = durability == Durability::machine_crash;
    EXPECT_EQ(read_whole(files, "file").size(), 4U);
    EXPECT_EQ(files.after_crash({})->kind_of("file"), survives ? EntryKind::file : EntryKind::missing);
  }
}

}  // namespace

}  // namespace zt::io
