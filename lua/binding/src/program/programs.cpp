// zt.program and its methods.
#include "program/open.h"
#include "program/values.h"
#include "zt/base/options.h"
#include "zt/program/program_spec.h"
#include "zt/program/recompute.h"

namespace zt::lua {

namespace {

struct ProgramOptions {
  int micro_batches = 1;
  Value precision = "fp32";
};

const Schema<ProgramOptions>& program_schema() {
  static const auto schema =
      Schema<ProgramOptions>("zt.program")
          .optional<int>("micro_batches", &ProgramOptions::micro_batches, "parts that a rank's batch is cut into", at_least(1))
          .optional("precision", &ProgramOptions::precision,
                    "of parameters: fp32, bf16, fp16 or fp64; or {params =, grads =, reduce =}");
  return schema;
}

struct RecomputeOptions {
  int every = 1;
};

const Schema<RecomputeOptions>& recompute_schema() {
  static const auto schema =
      Schema<RecomputeOptions>("zt.recompute")
          .optional<int>("every", &RecomputeOptions::every, "of the layers worth it, every k-th is recomputed", at_least(1));
  return schema;
}

int make_program(lua_State* L) {
  const auto model = check<Model>(L, 1);
  const ProgramOptions options = program_schema().parse(check_value(L, 2));
  push(L, std::make_shared<ProgramSpec>(model, options.micro_batches,
                                        parse_precision(options.precision, program_schema().name() + ".precision")));
  return 1;
}

int recompute(lua_State* L) {
  push(L, make_recompute(recompute_schema().parse(check_value(L, 1)).every));
  return 1;
}

int apply(lua_State* L) {
  push(L, check<ProgramSpec>(L, 1)->apply(check<Pass>(L, 2)));
  return 1;
}

// The program of rank `index` (default: this one) in training.
Program program_of(lua_State* L, const ProgramSpec& spec, int index) {
  Coord coord = spec.coord();
  if (!is_absent(L, index)) coord.rank = static_cast<int>(check_integer(L, index));
  if (coord.rank < 0 || coord.rank >= coord.shape.world_size()) {
    misuse("there is no rank {}: the program's mesh has {} ranks", coord.rank, coord.shape.world_size());
  }
  return spec.build(Mode::train, coord);
}

int text(lua_State* L) {
  push(L, program_of(L, *check<ProgramSpec>(L, 1), 2).text());
  return 1;
}

int actions(lua_State* L) {
  push(L, to_value(program_of(L, *check<ProgramSpec>(L, 1), 2).actions));
  return 1;
}

// program:with_actions(text) gives the whole training program, as program:text() prints it; program:with_actions(list) its
// actions, as program:actions() returns them. The passes so far do not change it any more; those applied later do.
int with_actions(lua_State* L) {
  const auto spec = check<ProgramSpec>(L, 1);
  const Value given = check_value(L, 2);
  const auto* as_text = given.get_if<std::string>();
  push(L, as_text ? spec->with_program(Program::parse(*as_text)) : spec->with_actions(to_actions(given, "actions")));
  return 1;
}

// The verifier's refusals of all ranks' training programs as a list of strings: empty when they are good.
int verify_program(lua_State* L) {
  const auto spec = check<ProgramSpec>(L, 1);
  const auto programs = spec->build_all(Mode::train);
  std::vector<const Program*> by_rank;
  for (const auto& program : programs) by_rank.push_back(program.get());
  Value::List list;
  for (const Refusal& refusal : verify(spec->model()->info(), spec->coord().shape, by_rank)) list.emplace_back(refusal.text());
  push(L, Value(list));
  return 1;
}

}  // namespace

void open_programs(Module& module) {
  module.function<make_program>("program").function<recompute>("recompute");
  module.type<ProgramSpec>()
      .method<apply>("apply")
      .method<text>("text")
      .method<actions>("actions")
      .method<with_actions>("with_actions")
      .method<verify_program>("verify")
      .metamethod<text>("__tostring");
  module.type<Pass>();
}

}  // namespace zt::lua
