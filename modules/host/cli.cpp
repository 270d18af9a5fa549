#include "cli.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "zt/base/error.h"
#include "zt/build_id.h"

namespace zt::host {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(
Ranks: run -n N starts N processes by mpirun, each a rank: root may do so, and ranks share cores if there are fewer. `mpirun -n N
ztoolkit run` is the same with mpirun's own options. --threads N runs N ranks as threads of one process, for tests and debugging.
Lines printed by ranks other than 0 begin with [rank].

Threads: a rank computes with OMP_NUM_THREADS threads. If this is not set, the machine's cores are divided by its ranks, and
a rank uses no more cores than mpirun bound it to.

Exit status: 0 success, 1 the script failed, 2 wrong command line, 130 interrupted; os.exit(n) gives n.
)";

const std::vector<std::string> kBuiltIn{"run", "plan", "info", "modules"};

bool has(const fs::path& folder, const char* name) {
  std::error_code unreadable;
  return fs::exists(folder / name, unreadable);
}
bool is_run(const fs::path& folder) {
  return has(folder, "options.json") || has(folder, "metrics.jsonl");
}

// Returns the names in the folder for which `is_wanted` is true, sorted; at most five and the number of the others.
template <class Wanted>
std::string names_in(const std::string& path, const Wanted& is_wanted) {
  constexpr size_t kShown = 5;
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(path, unreadable)) {
    if (is_wanted(entry.path())) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  const size_t hidden = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - hidden);
  return fmt::format("{}{}", fmt::join(names, ", "), hidden > 0 ? fmt::format(" and {} more", hidden) : "");
}

// Returns the end of a message about the folder `path`, given in place of a script or a subcommand: what is in it, and the
// commands for that. Starts with a space.
std::string folder_hint(const std::string& path) {
  if (has(path, "checkpoint.h5")) {
    return fmt::format(
        " with a checkpoint: ztoolkit ckpt show {0} prints what is in it, ztoolkit ckpt export {0} OUTPUT writes it "
        "for Hugging Face",
        path);
  }
  if (is_run(path)) {
    return fmt::format(
        " with a run: ztoolkit report {0} makes a page of it, ztoolkit ckpt ls {0} lists its checkpoints, ztoolkit trace {0} "
        "draws a step. To continue the run, start its script again with the same options (they are in {0}/options.json)",
        path);
  }
  if (has(path, "config.json") &&
      !names_in(path, [](const fs::path& file) { return file.extension() == ".safetensors"; }).empty()) {
    return fmt::format(" with a model of Hugging Face: ztoolkit ckpt import {0} RUN makes a checkpoint of it", path);
  }
  const std::string runs = names_in(path, is_run);
  if (!runs.empty()) return fmt::format(" with the runs {}: ztoolkit ckpt ls {} lists their checkpoints", runs, path);
  const std::string scripts = names_in(path, [](const fs::path& file) { return file.extension() == ".lua"; });
  if (!scripts.empty()) return fmt::format(" with the scripts {}: to run one, write: ztoolkit run {}/SCRIPT", scripts, path);
  const std::string others = names_in(path, [](const fs::path&) { return true; });
  return fmt::format(" {}: give a script, as in ztoolkit run SCRIPT.lua",
                     others.empty() ? std::string("without files that can be read") : "with " + others);
}

// The subcommands and their options.
struct CommandLineParser {
  CLI::App app{"ztoolkit trains models that do not fit one device: experiments are Lua scripts", "ztoolkit"};
  CLI::App* run = app.add_subcommand("run", "run a script: ztoolkit run [-n N] [--dry] [--threads N] script.lua [arguments...]");
  CLI::App* plan =
      app.add_subcommand("plan",
                         "what each kind of rank would hold, do and send: ztoolkit plan script.lua [arguments...] "
                         "[--ranks N] [--rank R] [--ranks-per-node K] [--backend NAME] [--json] [--simulate] [--costs NAME] "
                         "[--picture FILE] [--trace FILE] [--compare SCHEDULES]");
  CLI::App* info = app.add_subcommand("info", "what a bug report needs: versions, CPU, GPU, memory, environment, modules");
  CLI::App* modules = app.add_subcommand("modules", "the modules on the path, and why one cannot be loaded");
  LaunchOptions options;
  bool is_json = false;
  bool simulates = false;

  explicit CommandLineParser(const Paths& paths) {
    app.set_version_flag("--version", fmt::format("ztoolkit {} (ABI {}, build {})", ZT_VERSION, ZT_ABI, ZT_BUILD_ID),
                         "print the version");
    const std::vector<std::string> further = paths.commands();
    if (!further.empty()) app.footer(fmt::format("\nFurther subcommands: {}\n{}", fmt::join(further, ", "), kFooter));
    else app.footer(kFooter);
    // All words after the script's path belong to the script.
    run->prefix_command();
    run->add_flag("--dry", options.is_dry, "stop before the first step, without communication, and print the report");
    CLI::Option* processes = run->add_option("-n,--ranks", options.processes, "run N ranks as processes that mpirun starts")
                                 ->check(CLI::Range(1, 1 << 20))
                                 ->type_name("N");
    run->add_option("--threads", options.threads, "run N ranks as threads of this process")
        ->check(CLI::Range(1, 4096))
        ->excludes(processes)
        ->type_name("N");
    // Unknown words belong to the script.
    plan->allow_extras();
    plan->set_help_flag();
    plan->footer("--help before the script prints this text, after the script the script's own help.");
    plan->add_option("--ranks", options.ranks, "number of ranks of the run (1)")->check(CLI::Range(1, 1 << 20))->type_name("N");
    plan->add_option("--rank", options.rank, "rank that the script runs as (0)")->check(CLI::Range(0, 1 << 20))->type_name("R");
    plan->add_option("--ranks-per-node", options.ranks_per_node, "number of ranks on each machine (that of --costs, else 1)")
        ->check(CLI::Range(1, 1 << 20))
        ->type_name("K");
    plan->add_option("--backend", options.backend,
                     "backend of the axes for which the script names none (nccl for the machines of --costs)")
        ->type_name("NAME");
    plan->add_flag("--json", options.plan.is_json, "print JSON; the script's own output goes to standard error");
    plan->add_flag("--simulate", simulates,
                   "simulate the step: time, bubbles and memory of each kind of rank. The options below imply it");
    plan->add_option("--costs", options.plan.costs,
                     "a machine (v100, a100, h100, h200) or a JSON file, as docs/plans.md describes it (h200)")
        ->type_name("NAME");
    plan->add_option("--picture", options.plan.picture, "write the simulated step as an SVG picture")->type_name("FILE");
    plan->add_option("--trace", options.plan.trace, "write the simulated step as a trace for Chrome or Perfetto")
        ->type_name("FILE");
    plan->add_option("--compare", options.plan.compared, "simulate the step with these schedules of its pipeline: gpipe,zb_v")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("NAMES");
    info->add_flag("--json", is_json, "print JSON");
  }

  std::vector<std::string> options_of(const CLI::App* part) const {
    std::vector<std::string> names;
    for (const CLI::Option* option : part->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
  }

  [[noreturn]] void unknown_option(const std::string& option, const CLI::App* part) const {
    misuse("unknown option '{}'{}", option, suggest(option, options_of(part)));
  }
};

std::string help_of(const CommandLineParser& parser, const CLI::App* part) {
  return part->help(parser.app.get_name());
}

// `plan` takes options before and after the script, so CLI11 returns its --help as an unknown word.
bool asks_for_help(const std::vector<std::string>& rest) {
  return !rest.empty() && (rest[0] == "--help" || rest[0] == "-h");
}

Script script_of(const CommandLineParser& parser, const CLI::App* part, int argc, const char* const* argv) {
  const std::vector<std::string> rest = part->remaining();
  if (rest.empty()) misuse("no script given: ztoolkit {} [options] script.lua [arguments...]", part->get_name());
  if (rest[0].starts_with('-')) parser.unknown_option(rest[0], part);
  if (!fs::exists(rest[0])) misuse("there is no script '{}' (the current folder is {})", rest[0], fs::current_path().string());
  if (fs::is_directory(rest[0])) misuse("'{}' is a folder{}", rest[0], folder_hint(rest[0]));
  return {rest[0], {rest.begin() + 1, rest.end()}, {argv, argv + argc - rest.size()}};
}

Command print_command(std::string text) {
  Command command;
  command.text = std::move(text);
  return command;
}

Command run_command(Script script, LaunchOptions options) {
  Command command;
  command.verb = Verb::run;
  command.script = std::move(script);
  command.options = options;
  return command;
}

// Returns the command for `ztoolkit NAME arguments...`, where NAME is a subcommand written in Lua.
Command lua_command(const std::string& name, int argc, const char* const* argv, const Paths& paths) {
  const std::string file = paths.command_file(name);
  if (name.find('/') != std::string::npos || !fs::exists(file)) {
    std::vector<std::string> known = paths.commands();
    known.insert(known.end(), kBuiltIn.begin(), kBuiltIn.end());
    if (fs::is_directory(name)) misuse("'{}' is no subcommand. It is a folder{}", name, folder_hint(name));
    const std::string hint =
        fs::exists(name) ? fmt::format(": to run a script, write: ztoolkit run {}", name) : suggest(name, known);
    misuse("unknown subcommand '{}'{}", name, hint);
  }
  return run_command({file, {argv + 2, argv + argc}, {argv[0]}}, {});
}

Command list_command(const CommandLineParser& parser) {
  Command command;
  command.verb = parser.info->parsed() ? Verb::info : Verb::modules;
  command.is_json = parser.is_json;
  return command;
}

}  // namespace

Command parse_command_line(int argc, const char* const* argv, const Paths& paths) {
  CommandLineParser parser(paths);
  if (argc < 2) return print_command(parser.app.help());
  const std::string first = argv[1];
  const bool is_built_in = std::find(kBuiltIn.begin(), kBuiltIn.end(), first) != kBuiltIn.end();
  if (!is_built_in && !first.starts_with('-')) return lua_command(first, argc, argv, paths);
  try {
    parser.app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    return print_command(parser.app.version() + "\n");
  } catch (const CLI::CallForHelp&) {
    const auto parts = parser.app.get_subcommands();
    return print_command(parts.empty() ? parser.app.help() : help_of(parser, parts[0]));
  } catch (const CLI::ExtrasError&) {
    const auto parts = parser.app.get_subcommands();
    const CLI::App* part = parts.empty() ? &parser.app : parts[0];
    const std::string extra = parser.app.remaining(true).at(0);
    if (!extra.starts_with('-')) misuse("{} takes no argument '{}'", part->get_name(), extra);
    parser.unknown_option(extra, part);
  } catch (const CLI::ParseError& error) {
    throw Misuse(error.what());
  }
  parser.options.is_plan = parser.plan->parsed();
  PlanRequest& plan = parser.options.plan;
  parser.simulates |= !plan.picture.empty() || !plan.trace.empty() || !plan.compared.empty();
  if (parser.simulates && plan.costs.empty()) plan.costs = "h200";
  for (const CLI::App* part : {parser.run, parser.plan}) {
    if (!part->parsed()) continue;
    if (asks_for_help(part->remaining())) return print_command(help_of(parser, part));
    return run_command(script_of(parser, part, argc, argv), parser.options);
  }
  return list_command(parser);
}

}  // namespace zt::host
