// Injects trouble at call k, for every k. The work succeeds or throws, and a file is replaced completely or not at all.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "content.h"
#include "faults/fault_fs.h"
#include "faults/outcome.h"
#include "support/message.h"

namespace zt::io {

namespace {

using What = Trouble::What;

struct Case {
  What what;
  int error;
  bool passes;  // the work succeeds in spite of the error
};

const std::vector<Case> kCases{{What::death, 0, false},    {What::error, ENOSPC, false}, {What::error, EIO, false},
                               {What::error, EINTR, true}, {What::error, EAGAIN, true},  {What::short_count, 0, true}};

// Runs `prepare`, `work` and `check` on a new file system for k = 0, 1, 2 ..., with trouble at call k of `work`. Ends when `work`
// makes no more than k calls.
void at_every_call(const Case& trouble, const std::function<void(FaultFs&)>& prepare, const std::function<void(FaultFs&)>& work,
                   const std::function<void(FaultFs&, Outcome)>& check) {
  for (int64_t k = 0;; ++k) {
    FaultFs files;
    prepare(files);
    files.plan({trouble.what, k, trouble.error});
    const Outcome outcome = outcome_of([&] { work(files); });
    const auto calls = files.calls();
    if (k >= static_cast<int64_t>(calls.size())) {
      EXPECT_EQ(outcome, Outcome::done);
      EXPECT_GT(k, 2);
      return;
    }
    SCOPED_TRACE(testing::Message() << "trouble " << static_cast<int>(trouble.what) << " error " << trouble.error << " at call "
                                    << k << ": " << calls[static_cast<size_t>(k)]);
    check(files, outcome);
  }
}

Outcome expected(const Case& trouble) {
  if (trouble.passes) return Outcome::done;
  return trouble.what == What::death ? Outcome::death : Outcome::fault;
}

TEST(EveryCall, WriteFile) {
  const int64_t size = 2 * kBlock + 4097;
  const Bytes bytes = content(size);
  for (const Case& trouble : kCases) {
    at_every_call(
        trouble, [](FaultFs&) {}, [&](FaultFs& files) { write_file(files, "file", size, copying(bytes)); },
        [&](FaultFs& files, Outcome outcome) {
          EXPECT_EQ(outcome, expected(trouble));
          if (outcome != Outcome::done) return;
          files.sync_folder("/");
          EXPECT_EQ(read_whole(*files.after_crash({}), "file"), bytes);
        });
  }
}

TEST(EveryCall, WriteSmall) {
  const Bytes bytes = content(5000);
  for (const Case& trouble : kCases) {
    at_every_call(
        trouble, [](FaultFs&) {}, [&](FaultFs& files) { write_small(files, "file", bytes); },
        [&](FaultFs& files, Outcome outcome) {
          EXPECT_EQ(outcome, expected(trouble));
          if (outcome != Outcome::done) return;
          files.sync_folder("/");
          EXPECT_EQ(read_whole(*files.after_crash({}), "file"), bytes);
        });
  }
}

TEST(EveryCall, ReadSmallAndRanges) {
  const int64_t size = 3 * kBlock + 5;
  const Bytes bytes = content(size);
  const std::vector<FileRange> ranges{{0, 5000}, {3, 100}, {kBlock - 1, 2}, {2 * kBlock + 1, kBlock}, {size - 1, 1}};
  for (const Case& trouble : kCases) {
    std::vector<Bytes> got;
    Bytes whole;
    at_every_call(
        trouble, [&](FaultFs& files) { write_small(files, "file", bytes); },
        [&](FaultFs& files) {
          got = read_all(files, "file", ranges);
          whole = read_whole(files, "file");
        },
        [&](FaultFs&, Outcome outcome) {
          EXPECT_EQ(outcome, expected(trouble));
          if (outcome != Outcome::done) return;
          EXPECT_EQ(got, parts(bytes, ranges));
          EXPECT_EQ(whole, bytes);
        });
  }
}

TEST(EveryCall, ManyShortCountsInARow) {
  const int64_t size = 12 * kBlock + 1;
  const Bytes bytes = content(size);
  FaultFs files;
  files.plan({What::short_count, 0, 0, 80});
  write_file(files, "file", size, copying(bytes));
  files.plan({What::short_count, 0, 0, 80});
  const std::vector<FileRange> ranges{{0, 6 * kBlock + 1}, {6 * kBlock + 1, 6 * kBlock}};
  EXPECT_EQ(read_all(files, "file", ranges), parts(bytes, ranges));
}

// Calls `check` for each way in which a crash may leave data and names that were not synced.
template <class Check>
void after_each_crash(const FaultFs& files, const Check& check) {
  for (const Left data : {Left::nothing, Left::some, Left::everything}) {
    for (const Left names : {Left::nothing, Left::some, Left::everything}) {
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        SCOPED_TRACE(testing::Message() << "data " << static_cast<int>(data) << " names " << static_cast<int>(names) << " seed "
                                        << seed);
        check(*files.after_crash({data, names, seed}));
      }
    }
  }
}

TEST(EveryCall, ReplacingAFileGivesTheOldContentOrTheNew) {
  const Bytes before = content(5000, 1), after = content(9000, 2), left_over = content(20000, 3);
  for (const Case& trouble : kCases) {
    at_every_call(
        trouble,
        [&](FaultFs& files) {
          files.make_folder("run");
          write_small(files, "run/latest", before);
          write_small(files, "run/latest.partial", left_over);
          files.sync_folder("run");
          files.sync_folder("/");
        },
        [&](FaultFs& files) { replace_file(files, "run/latest", after); },
        [&](FaultFs& files, Outcome outcome) {
          EXPECT_EQ(outcome, expected(trouble));
          after_each_crash(files, [&](FaultFs& next) {
            const Bytes found = read_whole(next, "run/latest");
            EXPECT_TRUE(found == after || (found == before && outcome != Outcome::done)) << found.size() << " bytes";
          });
        });
  }
}

// The file is written in parts, and its start is rewritten at the end, as the writer of .npy files does.
TEST(EveryCall, WritingInPartsGivesTheOldContentOrTheNew) {
  const Bytes before = content(5000, 1), after = content(9000, 2), start = content(100, 3);
  const auto part = [&](int64_t begin, int64_t end) { return std::span(after).subspan(begin, end - begin); };
  for (const Case& trouble : kCases) {
    at_every_call(
        trouble,
        [&](FaultFs& files) {
          write_small(files, "file", before);
          files.sync_folder(".");
        },
        [&](FaultFs& files) {
          AtomicFile file("file", files);
          file.append(start);
          file.append(part(100, 5000));
          file.append(part(5000, 9000));
          file.overwrite(0, part(0, 100));
          file.commit();
        },
        [&](FaultFs& files, Outcome outcome) {
          EXPECT_EQ(outcome, expected(trouble));
          EXPECT_TRUE(outcome == Outcome::death || files.kind_of("file.partial") == EntryKind::missing);
          after_each_crash(files, [&](FaultFs& next) {
            const Bytes found = read_whole(next, "file");
            EXPECT_TRUE(found == after || (found == before && outcome != Outcome::done)) << found.size() << " bytes";
          });
        });
  }
}

TEST(EveryCall, ReplacingNothingGivesNothingOrTheNew) {
  const Bytes after = content(9000, 2);
  for (const Case& trouble : kCases) {
    at_every_call(
        trouble, [&](FaultFs&) {}, [&](FaultFs& files) { replace_file(files, "latest", after); },
        [&](FaultFs& files, Outcome outcome) {
          after_each_crash(files, [&](FaultFs& next) {
            const bool is_there = next.kind_of("latest") == EntryKind::file;
            EXPECT_TRUE(is_there || outcome != Outcome::done);
            if (!is_there) return;
            EXPECT_EQ(read_whole(next, "latest"), after);
          });
        });
  }
}

}  // namespace

}  // namespace zt::io
