// Schedules in scripts: reading and editing them step by step.
#include "lua/open.h"
#include "schedule/check.h"
#include "schedule/schedule.h"
#include "schedule/text.h"
#include "schedule/timing.h"
#include "zt/base/options.h"

namespace zt::pipe {

// The list of one rank. Keeps the schedule alive.
struct PipelineRank {
  std::shared_ptr<PipelineSchedule> schedule;
  int rank = 0;
  std::vector<PipelineStep>& steps() const { return schedule->ranks[static_cast<size_t>(rank)]; }
};

}  // namespace zt::pipe

namespace zt {
ZT_OBJECT(pipe::PipelineRank)
ZT_OBJECT(pipe::PipelineStep)
ZT_DEFINE_OBJECT(pipe::PipelineRank, "PipelineRank")
ZT_DEFINE_OBJECT(pipe::PipelineStep, "PipelineStep")
}  // namespace zt

namespace zt::pipe {

namespace {

void push(lua_State* L, const PipelineStep& step) {
  lua::push(L, std::make_shared<PipelineStep>(step));
}

// Pushes whether arguments 1 and 2 are equal.
template <class T>
int are_equal(lua_State* L) {
  lua::push(L, *lua::check<T>(L, 1) == *lua::check<T>(L, 2));
  return 1;
}

std::string text_of_rank(const PipelineRank& rank) {
  std::string text;
  for (const PipelineStep& step : rank.steps()) text += (text.empty() ? "" : " ") + text_of(step);
  return text;
}

// pipe.F(stage, micro_batch)
template <TaskKind kind>
int make_task(lua_State* L) {
  const auto number = [&](int index) {
    const int64_t value = lua::check_integer(L, index);
    if (value < 0 || value > 1 << 20) misuse("argument {}: stages and micro-batches are counted from 0, got {}", index, value);
    return static_cast<int>(value);
  };
  push(L, PipelineStep{{kind, number(1), number(2)}});
  return 1;
}

// pipe.overlap(pipe.F(0, 5), pipe.B(3, 2)): the layers of the two take turns
int overlap(lua_State* L) {
  const PipelineStep first = *lua::check<PipelineStep>(L, 1), second = *lua::check<PipelineStep>(L, 2);
  if (first.beside || second.beside) misuse("pipe.overlap takes two tasks, not one that is overlapped already");
  push(L, PipelineStep{first.task, second.task});
  return 1;
}

int step_beside(lua_State* L) {
  const auto beside = lua::check<PipelineStep>(L, 1)->beside;
  lua::push(L, beside ? std::make_shared<PipelineStep>(PipelineStep{*beside}) : std::shared_ptr<PipelineStep>());
  return 1;
}

// Returns the 0-based place that argument `index` names; `end` is one more than the last that is allowed.
size_t place_at(lua_State* L, int index, size_t end) {
  const int64_t place = lua::check_integer(L, index);
  if (place < 1 || place > static_cast<int64_t>(end)) misuse("there is no place {}: give one from 1 to {}", place, end);
  return static_cast<size_t>(place - 1);
}

// list:insert(place, step), or list:insert(step) at the end
int rank_insert(lua_State* L) {
  auto& steps = lua::check<PipelineRank>(L, 1)->steps();
  if (lua::is_absent(L, 3)) {
    steps.push_back(*lua::check<PipelineStep>(L, 2));
  } else {
    const size_t place = place_at(L, 2, steps.size() + 1);
    steps.insert(steps.begin() + static_cast<int64_t>(place), *lua::check<PipelineStep>(L, 3));
  }
  return 0;
}
// list:remove(place) -> the step
int rank_remove(lua_State* L) {
  auto& steps = lua::check<PipelineRank>(L, 1)->steps();
  const size_t place = place_at(L, 2, steps.size());
  push(L, steps[place]);
  steps.erase(steps.begin() + static_cast<int64_t>(place));
  return 1;
}
int rank_get(lua_State* L) {
  auto& steps = lua::check<PipelineRank>(L, 1)->steps();
  push(L, steps[place_at(L, 2, steps.size())]);
  return 1;
}
int rank_set(lua_State* L) {
  auto& steps = lua::check<PipelineRank>(L, 1)->steps();
  steps[place_at(L, 2, steps.size())] = *lua::check<PipelineStep>(L, 3);
  return 0;
}

// schedule:rank(0) -> its list, through which the schedule is edited
int schedule_rank(lua_State* L) {
  const auto schedule = lua::check<PipelineSchedule>(L, 1);
  const int64_t rank = lua::check_integer(L, 2);
  if (rank < 0 || rank >= static_cast<int64_t>(schedule->ranks.size()))
    misuse("there is no rank {}: the schedule has {}, counted from 0", rank, schedule->ranks.size());
  lua::push(L, std::make_shared<PipelineRank>(PipelineRank{schedule, static_cast<int>(rank)}));
  return 1;
}
int schedule_copy(lua_State* L) {
  lua::push(L, std::make_shared<PipelineSchedule>(*lua::check<PipelineSchedule>(L, 1)));
  return 1;
}

// pipe.check(schedule, {activations = 8}) -> a list of its mistakes, as strings; empty if there are none
struct CheckOptions {
  int activations = 0;
};
int check_schedule(lua_State* L) {
  static const auto schema =
      Schema<CheckOptions>("pipe.check")
          .optional<int>("activations", &CheckOptions::activations,
                         "most pairs of stage and micro-batch that a rank may hold; 0: any number", at_least(0));
  Value::List texts;
  for (const Mistake& mistake : check(*lua::check<PipelineSchedule>(L, 1), schema.parse(lua::check_value(L, 2)).activations))
    texts.emplace_back(mistake.text());
  lua::push(L, Value(texts));
  return 1;
}

}  // namespace

void open_schedules(lua::Module& module) {
  using Step = PipelineStep;
  using Schedule = PipelineSchedule;
  module.function<make_task<TaskKind::forward>>("F")
      .function<make_task<TaskKind::backward>>("B")
      .function<make_task<TaskKind::input_grad>>("I")
      .function<make_task<TaskKind::weight_grad>>("W")
      .function<overlap>("overlap")
      .function<check_schedule>("check");
  module.type<Step>()
      .getter<[](const Step& step) { return std::string(1, letter_of(step.task.kind)); }>("kind")
      .getter<[](const Step& step) { return int64_t{step.task.stage}; }>("stage")
      .getter<[](const Step& step) { return int64_t{step.task.micro_batch}; }>("micro_batch")
      .getter<step_beside>("beside")
      .metamethod<[](const Step& step) { return text_of(step); }>("__tostring")
      .metamethod<are_equal<Step>>("__eq");
  module.type<PipelineRank>()
      .method<rank_insert>("insert")
      .method<rank_remove>("remove")
      .method<rank_get>("get")
      .method<rank_set>("set")
      .metamethod<[](const PipelineRank& rank) { return std::ssize(rank.steps()); }>("__len")
      .metamethod<text_of_rank>("__tostring");
  module.type<Schedule>()
      .method<schedule_rank>("rank")
      .method<to_text>("text")
      .method<to_csv>("csv")
      .method<schedule_copy>("copy")
      .getter<[](const Schedule& schedule) { return std::ssize(schedule.ranks); }>("ranks")
      .getter<[](const Schedule& schedule) { return int64_t{schedule.chunks()}; }>("chunks")
      .getter<[](const Schedule& schedule) { return int64_t{schedule.micro_batches}; }>("micro_batches")
      .metamethod<to_text>("__tostring")
      .metamethod<are_equal<Schedule>>("__eq");
}

}  // namespace zt::pipe
