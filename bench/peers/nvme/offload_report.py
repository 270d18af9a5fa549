"""The results of offload.py: tables of runs, ratios of bytes that travel, the disk, the checks beside their targets, and JSON."""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # pipelines_report.py, tensor_parallel_report.py

from offload_rows import BLOCK, DEPTH, KINDS, RANKS, RATIOS, run_of_ratio
from pipelines_report import markdown
from tensor_parallel_report import check_table, checks_of, median_and_spread

MIB = 2**20


def in_words(result):
    """Returns a line about a result."""
    if "message" in result:
        return result["message"]
    if "step_seconds" in result:
        return f"{1000 * result['step_seconds']:6.0f} ms per step, {result['memory'] / MIB:5.0f} MiB per rank"
    if "own" in result:
        return ", ".join(f"{kind} {rate_text(result, 'own', kind)} ({rate_text(result, 'fio', kind)})" for kind in KINDS) + " GB/s"
    return ", ".join(f"{what} {statistics.median(result[what]):.2f} s, {max(result[f'{what}_memory']) / MIB:.0f} MiB more"
                     for what in ("save", "load"))


def rate_text(result, side, kind):
    return f"{result[side][kind] / 1e9:.2f}" if result[side] else "-"


def of_disk(results):
    """Returns the disk's rates of all repetitions as a table, and the remarks of `ztoolkit io bench`."""
    head = ["GB/s, median (spread)", *KINDS]
    lines = [head]
    for side, name in (("own", "swap file"), ("fio", "fio")):
        if results[0][side]:
            lines.append([name, *(median_and_spread([result[side][kind] / 1e9 for result in results], ".2f") for kind in KINDS)])
    remarks = dict.fromkeys(remark for result in results for remark in result["remarks"])
    if not results[0]["fio"]:
        remarks["fio is missing (Debian's package fio): R, W and M are the rates of swap files"] = 1
    return "\n\n".join([markdown(lines), *remarks])


def row_of_run(case, run, losses):
    results = case.results[run]
    first = results[0]
    cells = [run, median_and_spread([1000 * result["step_seconds"] for result in results], ".0f"),
             f"{statistics.median(result['tokens_per_second'] for result in results):.0f}",
             f"{max(result['memory'] for result in results) / MIB:.0f}"
             + (f" ({first['predicted_memory'] / MIB:.0f})" if "predicted_memory" in first else "")]
    if "moved" in first:
        measured = statistics.median(RANKS * result["measured_bytes"] for result in results)
        cells += [f"{first['files'] / MIB:.0f}", f"{first['staging'] / MIB:.0f}",
                  f"{first['moved']['all'] / MIB:.0f} ({measured / MIB:.0f})", f"{first['moved']['update'] / MIB:.0f}"]
    else:
        cells += [""] * 4
    return [*cells, f"{case.difference(run, losses):.1e}"]


def of_case(case):
    """Returns the tables of a case's runs, and a line for each run of another kind or that failed."""
    losses = {run: results[0]["losses"] for run, results in case.results.items() if "step_seconds" in results[0]}
    head = ["run", "ms of a step (spread)", "tokens/s", "MiB per rank (predicted)", "MiB in files per rank", "staging",
            "MiB moved by all ranks per step (measured)", "for the update", "first losses differ by"]
    parts = []
    if losses:
        parts.append(markdown([head, *(row_of_run(case, run, losses) for run in losses)]))
    parts += [f"{run}: {in_words(results[0])}" for run, results in case.results.items()
              if "step_seconds" not in results[0] and "own" not in results[0]]
    return "\n\n".join([*parts, of_disk(case.results["disk"])])


def of_ratios(cases):
    """Returns the step times by the share of the bytes that travels, or None if they were not measured."""
    lines = [["ms of a step by ratio", "", "in memory", *(f"{ratio:g}" for ratio in RATIOS)]]
    for case in cases:
        runs = ["memory, stage 1", *map(run_of_ratio, RATIOS)]
        if all(run in case.results for run in runs):
            seconds = [[1000 * result["step_seconds"] for result in case.results[run]] for run in runs]
            lines.append([case.model, case.precision, *(median_and_spread(values, ".0f") for values in seconds)])
    return markdown(lines) if len(lines) > 1 else None


def by_swap_files(cases):
    """Returns the cases whose checks need the disk's rates, with those of swap files in place of fio's."""
    found = []
    for case in cases:
        checks = [(row, check) for row, check in case.checks if "disk" in check.runs and row != "disk"]
        if checks and case.results["disk"][0]["fio"]:
            disk = [{**result, "fio": None} for result in case.results["disk"]]
            found.append(dataclasses.replace(case, checks=checks, results={**case.results, "disk": disk}))
    return found


def machine(options):
    """Returns a line about the processor, the memory, the disk and the programs."""
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "an unknown processor")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    disk = subprocess.run(["df", "--output=source,fstype,avail", "-h", options.disk], capture_output=True, text=True).stdout
    source, kind, free = disk.splitlines()[1].split()
    return (f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB of memory; {options.disk_folder} on {source} ({kind}, {free} "
            f"free); Linux {os.uname().release}. {RANKS} ranks, one core each. The disk's rates: {BLOCK} MiB at depth {DEPTH}.")


def report(cases, options):
    if options.json:
        print(json.dumps([{"model": case.model, "precision": case.precision, "results": case.results, "checks": checks_of(case)}
                          for case in cases], indent=1))
        return
    print(machine(options))
    for case in cases:
        shape = case.options
        if case.model == "disk":
            print(f"\n## Disk alone\n\n{of_disk(case.results['disk'])}")
            continue
        print(f"\n## {case.model}, {case.precision}: {shape.layers} layers, hidden {shape.hidden}, {shape.batch} x {shape.seq} "
              f"tokens, {shape.repetitions} repetition(s) of {shape.steps - shape.warmup} timed steps\n\n{of_case(case)}")
    ratios = of_ratios(cases)
    if ratios:
        print(f"\n## Share of the optimizer state that travels\n\n{ratios}")
    print(f"\n## Targets\n\n{check_table(cases)}")
    stricter = by_swap_files(cases)
    if stricter:
        print(f"\nThe same with R, W and M of swap files in place of fio's (for information):\n\n{check_table(stricter)}")
    if options.no_deepspeed:
        print(f"\nDeepSpeed was left out: {options.no_deepspeed}")
