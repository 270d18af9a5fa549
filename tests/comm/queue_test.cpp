#include "host/queue.h"

#include <gtest/gtest.h>

#include "zt/error.h"

namespace zt::comm {

namespace {

using Style = Patience::Style;

TEST(Queue, RunsInTheCallerWhenNothingIsQueued) {
  Queue queue;
  std::thread::id ran_in;
  const Work work = queue.submit(
      [&](Style style) {
        EXPECT_EQ(style, Style::caller);
        ran_in = std::this_thread::get_id();
      },
      Async::no);
  EXPECT_TRUE(work.done());
  EXPECT_EQ(ran_in, std::this_thread::get_id());
}

TEST(Queue, KeepsTheOrderWithItsThread) {
  Queue queue;
  std::vector<int> order;
  std::promise<void> gate;
  queue.submit(
      [&](Style style) {
        EXPECT_EQ(style, Style::background);
        gate.get_future().wait();
        order.push_back(0);
      },
      Async::yes);
  const Work last = queue.submit([&](Style) { order.push_back(1); }, Async::yes);
  EXPECT_FALSE(last.done());
  gate.set_value();
  queue.submit([&](Style) { order.push_back(2); }, Async::no);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(last.done());
}

TEST(Queue, NothingRunsAfterAFailure) {
  Queue queue;
  const Work broken = queue.submit([](Style) { fault("broken"); }, Async::yes);
  bool ran = false;
  const Work next = queue.submit([&](Style) { ran = true; }, Async::yes);
  EXPECT_THROW(next.wait(), Fault);
  EXPECT_THROW(broken.wait(), Fault);
  EXPECT_THROW(queue.submit([&](Style) { ran = true; }, Async::no), Fault);
  EXPECT_THROW(queue.drain(), Fault);
  EXPECT_FALSE(ran);
}

TEST(Queue, WorkOutlivesTheQueue) {
  Work work;
  {
    Queue queue;
    work = queue.submit([](Style) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, Async::yes);
  }
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST(Queue, CancelsWhatDoesNotEnd) {
  Work work;
  {
    Queue queue;
    work = queue.submit(
        [&queue](Style) {
          while (!queue.cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          throw Aborted("cancelled");
        },
        Async::yes);
  }
  EXPECT_THROW(work.wait(), Aborted);
}

}  // namespace

}  // namespace zt::comm
