// Programs as data: text, base programs, kinds, recompute, the flat layout.
#include <gtest/gtest.h>

#include "program_models.h"
#include "zt/base/error.h"
#include "zt/model/unit.h"
#include "zt/program/rank_program.h"
#include "zt/program/recompute.h"

namespace zt {
namespace {

using test::chain;

template <class Call>
std::string misuse_of(Call call) {
  try {
    call();
  } catch (const Misuse& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::vector<std::string> lines_of(const RankProgram& program) {
  std::vector<std::string> lines;
  for (const Action& action : program.actions) lines.push_back(action_text(action));
  return lines;
}

using Lines = std::vector<std::string>;

TEST(BaseProgram, TrainsMicroBatchesInOrder) {
  const RankProgram program = base_program(chain(1), Mode::train, 2);
  EXPECT_EQ(lines_of(program), (Lines{"COUNT", "F 0 0", "F 1 0", "F 2 0", "B 2 0", "B 1 0", "B 0 0", "F 0 1", "F 1 1", "F 2 1",
                                      "B 2 1", "B 1 1", "B 0 1", "NORM", "STEP 0", "STEP 1", "STEP 2"}));
  EXPECT_EQ(program.units, std::vector<UnitPlan>(3));
}

TEST(BaseProgram, EvaluatesAndGeneratesWithoutGraphs) {
  EXPECT_EQ(lines_of(base_program(chain(0), Mode::eval, 1)), (Lines{"COUNT", "F 0 0 keep=none", "F 1 0 keep=none", "NORM"}));
  EXPECT_EQ(lines_of(base_program(chain(0), Mode::generate, 2)),
            (Lines{"F 0 0 keep=none", "F 1 0 keep=none", "F 0 1 keep=none", "F 1 1 keep=none"}));
}

TEST(BaseProgram, SkipsFrozenUnitsAndRefusesNoMicroBatches) {
  const auto lines = lines_of(base_program(test::mixed_model(), Mode::train, 1));
  EXPECT_EQ(Lines(lines.end() - 3, lines.end()), (Lines{"STEP 0", "STEP 1", "STEP 3"}));
  EXPECT_NE(misuse_of([] { base_program(chain(1), Mode::train, 0); }).find("give at least 1"), std::string::npos);
}

TEST(BaseProgram, OfAnEmptyModelOnlyCounts) {
  EXPECT_EQ(lines_of(base_program({}, Mode::train, 3)), (Lines{"COUNT", "NORM"}));
}

TEST(ProgramText, RoundTripsPlansAndAttributes) {
  RankProgram program = base_program(chain(1), Mode::train, 2);
  program.units[1] = test::plan_of_stage(3);
  program.units[2] = {.sum_axes = {"replica", "dp"}, .params = Residence::node_shared};
  program.actions[0].attrs["axes"] = Value::List{"dp", "ep"};
  program.actions[1].attrs["keep"] = "inputs";
  program.actions[2].attrs["note"] = "two words, a \"quote\", a ] and a \\ and \n";
  program.actions[3].attrs = {{"word", "true"},       {"flag", false},
                              {"count", int64_t{-7}}, {"rate", 0.1},
                              {"whole", 2.0},         {"nil", Value()},
                              {"empty", ""},          {"table", Value::Table{{"key with blank", Value::List{1, Value::List{}}}}}};
  const std::string text = program.text();
  const RankProgram again = RankProgram::parse(text);
  EXPECT_EQ(again.text(), text);
  EXPECT_EQ(again.hash(), program.hash());
  EXPECT_EQ(again.units, program.units);
  EXPECT_EQ(again.micro_batches, 2);
  EXPECT_EQ(again.actions[0].axes(), (Lines{"dp", "ep"}));
  EXPECT_EQ(again.actions[2].attr("note"), program.actions[2].attr("note"));
  EXPECT_EQ(again.actions[3].attr("word"), "true");
  EXPECT_FALSE(*again.actions[3].attrs.at("flag").get_if<bool>());
  EXPECT_EQ(*again.actions[3].attrs.at("rate").get_if<double>(), 0.1);
  EXPECT_NE(again.actions[3].attrs.at("whole").get_if<double>(), nullptr);
  EXPECT_NE(text.find("F 0 0 keep=inputs\n"), std::string::npos);
}

TEST(ProgramText, SkipsCommentsAndEmptyLines) {
  const RankProgram program =
      RankProgram::parse("# by hand\n\nprogram mode=eval micro_batches=1 units=2\n  # indented\n\tF 0 0 keep=none\r\n NORM");
  EXPECT_EQ(program.mode, Mode::eval);
  EXPECT_EQ(lines_of(program), (Lines{"F 0 0 keep=none", "NORM"}));
}

TEST(ProgramText, HashDependsOnEveryPart) {
  const RankProgram program = base_program(chain(1), Mode::train, 2);
  std::set<uint64_t> hashes{program.hash()};
  const auto changed = [&](auto change) {
    RankProgram other = program;
    change(other);
    return hashes.insert(other.hash()).second;
  };
  EXPECT_TRUE(changed([](RankProgram& p) { p.mode = Mode::eval; }));
  EXPECT_TRUE(changed([](RankProgram& p) { p.micro_batches = 3; }));
  EXPECT_TRUE(changed([](RankProgram& p) { p.units[0].sum_axes = {"dp"}; }));
  EXPECT_TRUE(changed([](RankProgram& p) { p.actions[1].target = 1; }));
  EXPECT_TRUE(changed([](RankProgram& p) { p.actions[1].micro_batch = 1; }));
  EXPECT_TRUE(changed([](RankProgram& p) { p.actions[1].attrs["keep"] = "none"; }));
  EXPECT_TRUE(changed([](RankProgram& p) { std::swap(p.actions[1], p.actions[2]); }));
}

struct BadText {
  const char* text;
  const char* message;
};

class ProgramTextErrors : public testing::TestWithParam<BadText> {};

TEST_P(ProgramTextErrors, NameLineAndReason) {
  EXPECT_EQ(misuse_of([] { RankProgram::parse(GetParam().text); }), GetParam().message);
}

#define HEAD "program mode=train micro_batches=1 units=1\n"
INSTANTIATE_TEST_SUITE_P(
    All, ProgramTextErrors,
    testing::Values(
        BadText{"", "the program text is empty: it needs at least the line 'program mode=train micro_batches=1 units=0'"},
        BadText{"F 0 0",
                "program text, line 1: a program starts with a line such as 'program mode=train micro_batches=1 units=0'"},
        BadText{HEAD "\nNORN\n", "program text, line 3: unknown action kind 'NORN': did you mean 'NORM'?"},
        BadText{HEAD "F 0", "program text, line 2: F needs a micro-batch"},
        BadText{HEAD "STEP", "program text, line 2: STEP needs a unit"},
        BadText{HEAD "F x 0", "program text, line 2: a position of F must be a number, not 'x'"},
        BadText{HEAD "F 99999999999 0", "program text, line 2: a position of F must be a number, not '99999999999'"},
        BadText{HEAD "COUNT\nF 0 0 1", "program text, line 3: '1' is not an attribute: write name=value"},
        BadText{HEAD "F 0 0 keep=a-b",
                "program text, line 2: attribute 'keep' has the value a-b, which is neither JSON nor a word: quote strings"},
        BadText{HEAD "COUNT axes=[\"dp\"",
                "program text, line 2: attribute 'axes' has the value [\"dp\", which is neither JSON nor a word: "
                "quote strings"},
        BadText{HEAD "F 0 0 keep=none keep=none", "program text, line 2: attribute 'keep' is given twice"},
        BadText{HEAD HEAD, "program text, line 2: a second header: a text holds the program of one rank"},
        BadText{HEAD "unit 1 axis=dp", "program text, line 2: unit 1 is out of range: the header says units=1"},
        BadText{HEAD "unit 0 sum_axis=[]", "program text, line 2: unknown key 'sum_axis': did you mean 'sum_axes'?"},
        BadText{HEAD "unit 0 sum_axes=[1]", "program text, line 2: 'sum_axes' holds an integer: give a list of mesh axes' names"},
        BadText{HEAD "unit 0 state=shared", "program text, line 2: unknown residence 'shared': did you mean 'sharded'?"},
        BadText{"program mode=trian", "program text, line 1: unknown mode 'trian': did you mean 'train'?"},
        BadText{"program mode=eval micro_batches=two", "program text, line 1: 'micro_batches' cannot be a string"},
        BadText{"program mode=eval units=-1",
                "program text, line 1: units=-1 is out of range: give the model's number of units"}));

TEST(Action, NamesThePartOfTheGradientItSums) {
  Action action = parse_action("REDUCE_GRAD 3");
  EXPECT_EQ(action.gradient_part(), GradientPart::whole);
  const std::vector<std::pair<GradientPart, std::string>> words{
      {GradientPart::first, "first"}, {GradientPart::middle, "middle"}, {GradientPart::last, "last"}};
  for (const auto& [part, word] : words) {
    action.set_gradient_part(part);
    EXPECT_EQ(action_text(action), "REDUCE_GRAD 3 sum=" + word);
    EXPECT_EQ(action.gradient_part(), part);
  }
  action.set_gradient_part(GradientPart::whole);
  EXPECT_EQ(action_text(action), "REDUCE_GRAD 3");
  EXPECT_EQ(misuse_of([] { parse_action("REDUCE_GRAD 3 sum=frist").gradient_part(); }),
            "unknown value 'frist' of sum: did you mean 'first'?");
}

TEST(Kinds, AreFoundByNameAndStayOpen) {
  EXPECT_EQ(kind(kind_id("REDUCE_GRAD")).target, Index::unit);
  EXPECT_EQ(kind_id("F"), Kinds::get().forward);
  const auto nothing = [](const Action&, const ModelInfo&) { return Resources{}; };
  const KindId id = register_kind({"AVERAGE", Index::unit, false, "averages the weights", nothing});
  EXPECT_EQ(register_kind({"AVERAGE", Index::unit, false, "again", nothing}), id);
  EXPECT_EQ(kind(id).doc, "averages the weights");
  EXPECT_EQ(action_text(parse_action("AVERAGE 3 every=4")), "AVERAGE 3 every=4");
  EXPECT_EQ(misuse_of([&] {
              register_kind({"AVERAGE", Index::none, false, "", nothing});
            }),
            "the action kind 'AVERAGE' is registered already with another target: choose another name, or give the same "
            "declaration again");
  const auto reads_state = [](const Action& action, const ModelInfo&) {
    return Resources{{{resource::state, action.target}}, {}};
  };
  EXPECT_NE(misuse_of([&] {
              register_kind({"AVERAGE", Index::unit, false, "averages the weights", reads_state});
            }).find("'AVERAGE' is registered already with other resources that it reads, writes or frees"),
            std::string::npos);
  EXPECT_NE(misuse_of([&] {
              register_kind({"AVERAGE", Index::unit, true, "averages the weights", nothing});
            }).find("'AVERAGE' is registered already with no micro-batch"),
            std::string::npos);
  EXPECT_NE(misuse_of([&] {
              register_kind({"average", Index::none, false, "", nothing});
            }).find("upper-case"),
            std::string::npos);
  EXPECT_NE(misuse_of([&] {
              register_kind({"EMPTY", Index::none, false, "", nullptr});
            }).find("declares no resources"),
            std::string::npos);
  EXPECT_NE(misuse_of([] { kind_id("REDUCE_GRADS"); }).find("did you mean 'REDUCE_GRAD'"), std::string::npos);
  EXPECT_NE(misuse_of([] { kind(-1); }).find("no action kind number -1"), std::string::npos);
}

TEST(Kinds, DeclareTheirResources) {
  const ModelInfo model = test::mixed_model();
  const auto resources = [&](const char* line) {
    const Action action = parse_action(line);
    return resources_of(action, model);
  };
  using namespace resource;
  const auto forward = resources("F 4 1");
  EXPECT_EQ(forward.reads, (std::vector<Resource>{{value, 0, 1}, {value, 3, 1}}));
  EXPECT_EQ(forward.writes, (std::vector<Resource>{{graph, 4, 1}, {value, 4, 1}}));
  const auto shared = resources("B 2 0");
  EXPECT_EQ(shared.reads, (std::vector<Resource>{{graph, 2, 0}, {value_grad, 2, 0}, {param, 1}}));
  EXPECT_EQ(shared.writes, (std::vector<Resource>{{value_grad, 1, 0}, {grad, 1}}));
  EXPECT_EQ(shared.frees, (std::vector<Resource>{{value, 2, 0}, {graph, 2, 0}, {value_grad, 2, 0}}));
  EXPECT_EQ(resources("B 3 0").writes.size(), 1u) << "a frozen unit has no gradient";
  EXPECT_EQ(resources("REDUCE_GRAD 3 units=[0]").writes,
            (std::vector<Resource>{{grad, 3}, {grad, 0}, {resource::grad_shard, 3}, {resource::grad_shard, 0}}));
  EXPECT_EQ(resources("UNSHARD 1").reads, (std::vector<Resource>{{resource::shard, 1}}));
  EXPECT_EQ(resources("NORM").reads.size(), 4u);
}

TEST(Recompute, OfEveryBlock) {
  const RankProgram program = make_recompute(1)->apply(base_program(chain(2), Mode::train, 1), chain(2), {});
  EXPECT_EQ(lines_of(program), (Lines{"COUNT", "F 0 0", "F 1 0 keep=inputs", "F 2 0 keep=inputs", "F 3 0", "B 3 0", "R 2 0",
                                      "B 2 0", "R 1 0", "B 1 0", "B 0 0", "NORM", "STEP 0", "STEP 1", "STEP 2", "STEP 3"}));
}

TEST(Recompute, OfEverySecondCountsBlocksOverTheModel) {
  const RankProgram program = make_recompute(2)->apply(base_program(chain(5), Mode::train, 2), chain(5), {});
  std::set<int> positions;
  for (const Action& action : program.actions) {
    if (action.kind == Kinds::get().recompute) positions.insert(action.target);
  }
  EXPECT_EQ(positions, (std::set<int>{2, 4}));
}

TEST(Recompute, LeavesOtherPositionsAlone) {
  const ModelInfo model = test::mixed_model();  // not eligible: embed has no input, skip no parameters; no position reads head
  const RankProgram program = make_recompute(1)->apply(base_program(model, Mode::train, 1), model, {});
  std::set<int> positions;
  for (const Action& action : program.actions) {
    if (action.kind == Kinds::get().recompute) positions.insert(action.target);
  }
  EXPECT_EQ(positions, (std::set<int>{1, 2, 3}));
  const RankProgram eval = base_program(model, Mode::eval, 1);
  EXPECT_EQ(make_recompute(1)->apply(eval, model, {}).text(), eval.text());
}

TEST(Recompute, RefusesNonsense) {
  EXPECT_NE(misuse_of([] { make_recompute(0); }).find("every = 0"), std::string::npos);
  const auto pass = make_recompute(1);
  const RankProgram once = pass->apply(base_program(chain(1), Mode::train, 1), chain(1), {});
  EXPECT_NE(misuse_of([&] { pass->apply(once, chain(1), {}); }).find("apply this pass once"), std::string::npos);
}

TEST(Phases, HaveNames) {
  EXPECT_EQ(parse_phase("residency"), Phase::residency);
  EXPECT_EQ(phase_name(Phase::overlap), "overlap");
  EXPECT_NE(misuse_of([] { parse_phase("reducton"); }).find("did you mean 'reduction'"), std::string::npos);
}

TEST(FlatLayout, CoversEveryElementOnce) {
  for (const int64_t n : {0, 1, 31, 255, 256, 257, 511, 513, 1279, 1281, 100003}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const FlatLayout layout(n, ranks);
      EXPECT_EQ(layout.chunk % FlatLayout::kBlock, 0);
      EXPECT_GE(layout.padded(), n);
      EXPECT_LT(layout.padded() - n, FlatLayout::kBlock * ranks) << "no more padding than one block per rank";
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(layout.begin(rank), next);
        EXPECT_LE(layout.begin(rank), layout.end(rank));
        EXPECT_LE(layout.end(rank) - layout.begin(rank), layout.chunk);
        next = layout.end(rank);
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(FlatLayout, HasEmptyShards) {
  const FlatLayout layout(257, 4);
  EXPECT_EQ(layout.chunk, 256);
  EXPECT_EQ(layout.end(1), 257);
  EXPECT_EQ(layout.begin(3), 257);
  EXPECT_EQ(layout.end(3), 257);
  EXPECT_EQ(FlatLayout(0, 3).padded(), 0);
  EXPECT_NE(misuse_of([] { FlatLayout(1, 0); }).find("at least one rank"), std::string::npos);
  EXPECT_NE(misuse_of([] { FlatLayout(-1, 1); }).find("-1 elements"), std::string::npos);
}

}  // namespace
}  // namespace zt
