#include "saved_content.h"

#include <gtest/gtest.h>

#include "load/loader.h"
#include "save/saver.h"

namespace zt::test {

using namespace zt::ckpt;
using namespace zt::io;

void save(const std::shared_ptr<io::FaultFs>& files, int64_t step, int content, const Retention& retention) {
  Saver saver(files, Ranks());
  SaveOptions options;
  options.mode = SaveMode::blocking;
  options.retention = retention;
  saver.save(kRoot, step, objects_of(make_bag(0, 1, content)), options);
}

std::shared_ptr<io::FaultFs> with_a_checkpoint() {
  auto files = std::make_shared<io::FaultFs>();
  save(files, 1, 1);
  return files;
}

int content_of_latest(io::FaultFs& files) {
  const auto name = latest(files, kRoot);
  if (!name) return -1;
  const auto bag = make_bag(0, 1, 0);
  load(files, Ranks(), std::string(kRoot) + "/" + *name, objects_of(bag), {});
  const auto content = static_cast<int>(*bag->values.at("step").get_if<int64_t>());
  EXPECT_TRUE(equal(*bag, *make_bag(0, 1, content))) << "content " << content << " is mixed";
  return content;
}

void check_after_crash(const io::FaultFs& before, const Crash& crash, Outcome outcome) {
  const std::shared_ptr<io::FaultFs> files = before.after_crash(crash);
  const int content = content_of_latest(*files);
  if (outcome == Outcome::done) EXPECT_EQ(content, 2);
  else EXPECT_TRUE(content == 1 || content == 2) << content;
  for (const auto& [step, name] : complete(*files, kRoot)) EXPECT_TRUE(verify(*files, std::string(kRoot) + "/" + name).empty());
  collect_garbage(*files, kRoot);
  EXPECT_TRUE(partial(*files, kRoot).empty());
  EXPECT_EQ(content_of_latest(*files), content);
  save(files, 3, 3, {1, 0});
  EXPECT_EQ(content_of_latest(*files), 3);
  EXPECT_EQ(complete(*files, kRoot).size(), 1U);
}

}  // namespace zt::test
