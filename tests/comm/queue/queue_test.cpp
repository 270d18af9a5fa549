#include "queue/queue.h"

#include <gtest/gtest.h>

#include "zt/base/error.h"

namespace zt::comm {

namespace {

using Style = WaitPolicy::Style;

TEST(Queue, RunsInTheCallerWhenNothingIsQueued) {
  Queue queue;
  std::thread::id ran_in;
  queue.run_now([&](Style style) {
    EXPECT_EQ(style, Style::caller);
    ran_in = std::this_thread::get_id();
  });
  EXPECT_EQ(ran_in, std::this_thread::get_id());
}

TEST(Queue, KeepsTheOrderWithItsThread) {
  Queue queue;
  std::vector<int> order;
  std::promise<void> gate;
  queue.submit([&](Style style) {
    EXPECT_EQ(style, Style::background);
    gate.get_future().wait();
    order.push_back(0);
  });
  const Work last = queue.submit([&](Style) { order.push_back(1); });
  EXPECT_FALSE(last.done());
  gate.set_value();
  queue.run_now([&](Style) { order.push_back(2); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(last.done());
}

TEST(Queue, NothingRunsAfterAFailure) {
  Queue queue;
  const Work broken = queue.submit([](Style) { fault("broken"); });
  bool ran = false;
  const Work next = queue.submit([&](Style) { ran = true; });
  EXPECT_THROW(next.wait(), Fault);
  EXPECT_THROW(broken.wait(), Fault);
  EXPECT_THROW(queue.run_now([&](Style) { ran = true; }), Fault);
  EXPECT_THROW(queue.drain(), Fault);
  EXPECT_FALSE(ran);
}

TEST(Queue, WorkOutlivesTheQueue) {
  Work work;
  {
    Queue queue;
    work = queue.submit([](Style) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  }
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST(Queue, CancelsWhatDoesNotEnd) {
  Work work;
  {
    Queue queue;
    work = queue.submit([&queue](Style) {
      while (!queue.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw Aborted("cancelled");
    });
  }
  EXPECT_THROW(work.wait(), Aborted);
}

}  // namespace

}  // namespace zt::comm
