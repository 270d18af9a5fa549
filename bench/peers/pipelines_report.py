"""The results of pipelines.py: medians, ratios beside their targets, and their tables."""

import json
import statistics

import train_vs
from train_vs_deepspeed import CHECKED, parameters

DATA_PARALLEL = "data parallel"  # the "schedule" of data parallelism
SETTING = ("layers", "hidden", "heads", "vocab", "seq", "micro_batch", "steps", "warmup", "repetitions", "stage", "lr", "cut2",
           "cut4")


def summary(results):
    """Returns one row per case and run: {precision, micro_batches, side, schedule, tokens_per_second, spread, memory,
    start_seconds, difference, losses}. `memory` is in bytes per rank. `difference` is the largest relative difference of the
    checked losses from those of the case's first run."""
    rows = []
    for (precision, micro_batches), runs in results.items():
        first = next(iter(runs.values()))[0]["losses"]
        for (side, schedule), repetitions in runs.items():
            speeds, losses = [result["tokens_per_second"] for result in repetitions], repetitions[0]["losses"]
            rows.append({"precision": precision, "micro_batches": micro_batches, "side": side, "schedule": schedule,
                         "tokens_per_second": statistics.median(speeds), "spread": train_vs.spread(speeds),
                         "memory": max(result["memory"] for result in repetitions),
                         "start_seconds": statistics.median(result["start_seconds"] for result in repetitions),
                         "difference": train_vs.largest_difference(losses[: CHECKED[precision]], first[: CHECKED[precision]]),
                         "losses": losses})
    return rows


def fastest(speeds, side):
    """Returns the speed of a side's fastest schedule, or None if the side was not measured."""
    return max((speed for (its_side, _), speed in speeds.items() if its_side == side), default=None)


def ratios_of_peers(precision, speeds):
    """Returns [(name, numerator, denominator, target or None)] of one case. `speeds`: {(side, schedule): tokens/s}."""
    same, peer, deepspeed = (1.15, 1.25, 1.35) if precision == "fp32" else (None, None, 1.7)
    ours = fastest(speeds, "ztoolkit")
    return [
        ("1F1B / PyTorch's 1F1B", speeds.get(("ztoolkit", "one_f_one_b")), speeds.get(("PyTorch", "1F1B")), same),
        ("fastest / PyTorch's fastest", ours, fastest(speeds, "PyTorch"), peer),
        ("fastest / DeepSpeed", ours, fastest(speeds, "DeepSpeed"), deepspeed),
    ]


def ratios_of_even(micro_batches, ranks, speeds):
    """Returns the same for ztoolkit's schedules and its data parallelism."""
    targets = {"one_f_one_b": 0.97 * micro_batches / (micro_batches + ranks - 1), "zb_v": 0.95 if micro_batches == 8 else None}
    whole = speeds.get(("ztoolkit", DATA_PARALLEL))
    return [(f"{schedule} / {DATA_PARALLEL}", speed, whole, targets.get(schedule))
            for (_, schedule), speed in speeds.items() if schedule != DATA_PARALLEL]


def ratios(rows, options):
    """Returns [{precision, micro_batches, name, ratio, target}] of all cases, without ratios to sides that were not measured."""
    cases = {}
    for row in rows:
        case = cases.setdefault((row["precision"], row["micro_batches"]), {})
        case[row["side"], row["schedule"]] = row["tokens_per_second"]
    found = []
    for (precision, micro_batches), speeds in cases.items():
        named = ratios_of_even(micro_batches, options.ranks, speeds) if options.even else ratios_of_peers(precision, speeds)
        found += [{"precision": precision, "micro_batches": micro_batches, "name": name, "ratio": a / b, "target": target}
                  for name, a, b, target in named if a and b]
    return found


def markdown(lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def speed_table(rows, cut_of):
    lines = [["side", "schedule", "cut", "tokens/s (spread)", "MiB per rank", "losses differ by"]]
    for row in rows:
        cut = "" if row["schedule"] == DATA_PARALLEL else ",".join(map(str, cut_of(row["schedule"])))
        lines.append([row["side"], row["schedule"], cut, f"{row['tokens_per_second']:.0f} ({row['spread']:.1%})",
                      f"{row['memory'] / 2**20:.0f}", f"{row['difference']:.1e}"])
    return markdown(lines)


def ratio_table(found):
    lines = [["ratio of ztoolkit", "measured", "target"]]
    lines += [[row["name"], f"{row['ratio']:.3f}", f"{row['target']:.3f}" if row["target"] else ""] for row in found]
    return markdown(lines)


def report(results, options, cut_of):
    """Prints the results of pipelines.measure as tables, or as JSON. `cut_of(schedule)` returns a schedule's cut."""
    rows = summary(results)
    found = ratios(rows, options)
    if options.json:
        setting = {"parameters": parameters(options), **{name: getattr(options, name) for name in SETTING}}
        print(json.dumps({"setting": setting, "rows": rows, "ratios": found}, indent=1))
        return
    print(f"{parameters(options):,} parameters, {options.ranks} ranks, {options.repetitions} repetition(s) of "
          f"{options.steps - options.warmup} timed steps with micro-batches of {options.micro_batch} x {options.seq} tokens")
    for precision, micro_batches in results:
        def of_case(lines):
            return [line for line in lines if (line["precision"], line["micro_batches"]) == (precision, micro_batches)]

        print(f"\n{precision}, {micro_batches} micro-batches\n", speed_table(of_case(rows), cut_of), sep="\n")
        if of_case(found):
            print("", ratio_table(of_case(found)), sep="\n")
