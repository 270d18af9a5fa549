// zt.program and its methods.
#include "program/open.h"
#include "program/values.h"
#include "zt/base/options.h"
#include "zt/program/micro_batch_pairs.h"
#include "zt/program/program.h"
#include "zt/program/recompute.h"
#include "zt/program/split_backward.h"

namespace zt::lua {

namespace {

struct ProgramOptions {
  int micro_batches = 1, eval_micro_batches = 1;
  Value precision = "fp32";
  std::vector<std::string> inputs_need_grad;
  std::shared_ptr<Mesh> mesh;
};

const Schema<ProgramOptions>& program_schema() {
  static const auto schema = Schema<ProgramOptions>("zt.program")
                                 .optional<int>("micro_batches", &ProgramOptions::micro_batches,
                                                "number of micro-batches in a rank's batch", at_least(1))
                                 .optional<int>("eval_micro_batches", &ProgramOptions::eval_micro_batches,
                                                "the same for evaluation and inference", at_least(1))
                                 .optional("precision", &ProgramOptions::precision,
                                           "dtype of parameters: fp32, bf16, fp16 or fp64; or {params =, grads =, reduce =}")
                                 .optional("inputs_need_grad", &ProgramOptions::inputs_need_grad,
                                           "batch fields of which trainer:input_gradients gives the gradients")
                                 .optional("mesh", &ProgramOptions::mesh,
                                           "the mesh of the ranks that run it, for a program without a pass that has one");
  return schema;
}

struct RecomputeOptions {
  int every = 1;
};

const Schema<RecomputeOptions>& recompute_schema() {
  static const auto schema =
      Schema<RecomputeOptions>("zt.recompute")
          .optional<int>("every", &RecomputeOptions::every,
                         "k: of the layers that are worth recomputing, every k-th is recomputed", at_least(1));
  return schema;
}

int make_program(lua_State* L) {
  const auto model = check<Model>(L, 1);
  const ProgramOptions options = program_schema().parse(check_value(L, 2));
  const Precision precision = parse_precision(options.precision, program_schema().name() + ".precision");
  auto program = std::make_shared<Program>(model, options.micro_batches, precision, options.eval_micro_batches)
                     ->with_input_gradients(options.inputs_need_grad);
  push(L, options.mesh ? program->on_mesh(options.mesh) : program);
  return 1;
}

int recompute(lua_State* L) {
  push(L, make_recompute(recompute_schema().parse(check_value(L, 1)).every));
  return 1;
}

struct NoOptions {};

int split_backward(lua_State* L) {
  static const auto schema = Schema<NoOptions>("zt.split_backward");
  schema.parse(check_value(L, 1));
  push(L, make_split_backward());
  return 1;
}

int pair_micro_batches(lua_State* L) {
  static const auto schema = Schema<NoOptions>("zt.pair_micro_batches");
  schema.parse(check_value(L, 1));
  push(L, make_micro_batch_pairs());
  return 1;
}

int apply(lua_State* L) {
  push(L, check<Program>(L, 1)->apply(check<Pass>(L, 2)));
  return 1;
}

// Returns the training program of the rank that argument `index` gives; by default, of this rank.
RankProgram program_of(lua_State* L, const Program& program, int index) {
  Coord coord = program.coord();
  if (!is_absent(L, index)) coord.rank = static_cast<int>(check_integer(L, index));
  if (coord.rank < 0 || coord.rank >= coord.shape.world_size()) {
    misuse("there is no rank {}: the program's mesh has {} ranks", coord.rank, coord.shape.world_size());
  }
  return program.build(Mode::train, coord);
}

int text(lua_State* L) {
  push(L, program_of(L, *check<Program>(L, 1), 2).text());
  return 1;
}

int actions(lua_State* L) {
  push(L, to_value(program_of(L, *check<Program>(L, 1), 2).actions));
  return 1;
}

// Returns what the script's function(coord) returns for each rank.
Value lists_of_ranks(Callable& function, const Program& program) {
  Value::List by_rank;
  const MeshShape shape = program.coord().shape;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    lua_State* L = function.begin();
    const StackScope restored(L, lua_gettop(L) - 1);
    push(L, coord_value({shape, rank}, std::nullopt));
    function.call(1, 1);
    by_rank.push_back(check_value(L, -1));
    const Value& given = by_rank.back();
    const auto* table = given.get_if<Value::Table>();
    if (!given.get_if<std::string>() && !given.get_if<Value::List>() && !(table && table->empty()))
      misuse("the function of with_actions returned {} for rank {}: return a text, or a list of actions", given.type_name(),
             rank);
  }
  return by_rank;
}

// program:with_actions(text) sets the whole training program, in the format of program:text(). program:with_actions(list) sets
// its actions, in the format of program:actions(). A list of texts or of such lists has one per rank. Passes that were applied
// before no longer change the program; later passes do. A function(coord), with `info.coord` of passes, returns that of a rank.
int with_actions(lua_State* L) {
  const auto program = check<Program>(L, 1);
  Value given = check_value(L, 2);
  if (const auto* object = given.get_if<Object>(); object && object->as<Callable>())
    given = lists_of_ranks(*object->as<Callable>(), *program);
  if (const auto* text = given.get_if<std::string>()) {
    push(L, program->with_program(RankProgram::parse(*text)));
    return 1;
  }
  const auto* list = given.get_if<Value::List>();
  const Value first = list && !list->empty() ? list->front() : Value();
  if (first.get_if<std::string>()) {
    std::vector<std::string> texts;
    convert(given, "with_actions", texts);
    std::vector<RankProgram> programs;
    for (size_t rank = 0; rank < texts.size(); ++rank)
      programs.push_back(with_context([&] { return fmt::format("the text of rank {}", rank); },
                                      [&] { return RankProgram::parse(texts[rank]); }));
    push(L, program->with_programs(std::move(programs)));
  } else if (first.get_if<Value::List>()) {
    std::vector<std::vector<Action>> by_rank;
    for (size_t rank = 0; rank < list->size(); ++rank)
      by_rank.push_back(to_actions((*list)[rank], fmt::format("actions[{}]", rank + 1)));
    push(L, program->with_actions_by_rank(std::move(by_rank)));
  } else {
    push(L, program->with_actions(to_actions(given, "actions")));
  }
  return 1;
}

// program:verify() -> a list of the verifier's errors in all ranks' training programs, as strings; empty if there are none
int verify_program(lua_State* L) {
  const auto program = check<Program>(L, 1);
  const auto programs = program->build_all(Mode::train);
  std::vector<const RankProgram*> by_rank;
  for (const auto& of_rank : programs) by_rank.push_back(of_rank.get());
  Value::List list;
  for (const Refusal& refusal : verify(program->info(), program->coord().shape, by_rank)) list.emplace_back(refusal.text());
  push(L, Value(list));
  return 1;
}

}  // namespace

void open_programs(Module& module) {
  module.function<make_program>("program").function<recompute>("recompute");
  module.function<split_backward>("split_backward").function<pair_micro_batches>("pair_micro_batches");
  module.type<Program>()
      .method<apply>("apply")
      .method<text>("text")
      .method<actions>("actions")
      .method<with_actions>("with_actions")
      .method<verify_program>("verify")
      .getter<[](const Program& program) { return program.micro_batches(Mode::train); }>("micro_batches")
      .getter<[](const Program& program) { return program.micro_batches(Mode::eval); }>("eval_micro_batches")
      .metamethod<text>("__tostring");
  module.type<Pass>();
}

}  // namespace zt::lua
