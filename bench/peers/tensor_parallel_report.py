"""The results of tensor_parallel.py: tables of runs, of ratios beside their targets, and JSON."""

import json
import statistics

import train_vs
from pipelines_report import markdown
from tensor_parallel_rows import products_of


def in_words(result):
    """Returns a line about a result."""
    if "tokens_per_second" in result:
        return (f"{result['tokens_per_second']:7.0f} tokens/s {result['memory'] / 2**20:6.0f} MiB per rank"
                + (f", activations {result['activations'] / 2**20:.0f} MiB" if "activations" in result else ""))
    if "step_seconds" in result:
        return f"{1000 * result['step_seconds']:.0f} ms"
    return ", ".join(f"{name} {value:.6g}" for name, value in result.items())


def median_and_spread(values, form):
    return f"{statistics.median(values):{form}} ({train_vs.spread(values):.0%})"


def row_of_run(case, run):
    """Returns the cells of a run whose results have step_seconds."""
    results = case.results[run]
    seconds = [result["step_seconds"] for result in results]
    cells = [run, median_and_spread([1000 * value for value in seconds], ".0f")]
    if "losses" not in results[0]:
        return cells + [""] * 5
    products = case.results.get(products_of(run, case.model))
    shares = [of["step_seconds"] / value for of, value in zip(products, seconds)] if products else []
    predicted = results[0].get("predicted_memory")
    losses = {name: found[0]["losses"] for name, found in case.results.items() if "losses" in found[0]}
    return cells + [f"{statistics.median(result['tokens_per_second'] for result in results):.0f}",
                    f"{statistics.median(shares):.2f}" if shares else "",
                    f"{results[0]['activations'] / 2**20:.0f}" if "activations" in results[0] else "",
                    f"{max(result['memory'] for result in results) / 2**20:.0f}"
                    + (f" ({predicted / 2**20:.0f})" if predicted else ""), f"{case.difference(run, losses):.1e}"]


def run_table(case):
    """Returns the table of the case's training runs and GEMMs, and a line for each run of another kind."""
    head = ["run", "ms of a step (spread)", "tokens/s", "share of GEMMs", "activations, MiB", "MiB per rank (predicted)",
            "first losses differ by"]
    rows = [row_of_run(case, run) for run, results in case.results.items() if "step_seconds" in results[0]]
    others = [f"{run}: {in_words(results[0])}" for run, results in case.results.items() if "step_seconds" not in results[0]]
    return "\n\n".join([markdown([head, *rows])] * bool(rows) + others)


def checks_of(case):
    """Returns one dict per check: {row, model, precision, title, value, spread, target, holds}. `value` is the median of the
    repetitions."""
    found = []
    for row, check in case.checks:
        values = [check.value(*results) for results in zip(*(case.results[run] for run in check.runs))]
        value = statistics.median(values)
        found.append({"row": row, "model": case.model, "precision": case.precision, "title": check.title, "value": value,
                      "spread": max(values) - min(values), "target": check.target, "is_least": check.is_least,
                      "holds": check.holds(value)})
    return found


def all_hold(cases):
    return all(check["holds"] for case in cases for check in checks_of(case))


def check_table(cases):
    """Returns the summary of all checks. The spread of a check is largest - smallest: a difference of shares may be near 0."""
    lines = [["row", "model", "", "what", "measured", "largest - smallest", "target", "holds"]]
    for check in (check for case in cases for check in checks_of(case)):
        lines.append([check["row"], check["model"], check["precision"], check["title"], f"{check['value']:.3f}",
                      f"{check['spread']:.3f}", f"{'at least' if check['is_least'] else 'at most'} {check['target']:g}",
                      "yes" if check["holds"] else "NO"])
    return markdown(lines)


def report(cases, options):
    if options.json:
        print(json.dumps([{"model": case.model, "precision": case.precision, "results": case.results, "checks": checks_of(case)}
                          for case in cases], indent=1))
        return
    for case in cases:
        shape = case.options
        print(f"\n{case.model}, {case.precision}: {shape.layers} layers, hidden {shape.hidden}, {shape.batch} x {shape.seq} tokens, "
              f"{shape.repetitions} repetition(s) of {shape.steps - shape.warmup} timed steps\n\n{run_table(case)}")
    print(f"\nSummary\n\n{check_table(cases)}")
