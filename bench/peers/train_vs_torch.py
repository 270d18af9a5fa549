#!/usr/bin/env python3
"""Measures the tokens/s of ztoolkit and of PyTorch on the same model, weights and batches, in alternation.

    .venv-oracle/bin/python bench/peers/train_vs_torch.py --ranks 1
    .venv-oracle/bin/python bench/peers/train_vs_torch.py --ranks 2

The model is that of scripts/exp/gpt.lua: a GPT-2 of about 3 M parameters, fp32, AdamW, clipping. Each rank has one thread and is
bound to one core. PyTorch runs eagerly; with several ranks it uses DistributedDataParallel over gloo. Each repetition starts new
processes for both sides, and the sides take turns to run first. The benchmark fails if the losses of the first --check steps
differ by more than --tolerance.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import needs

needs.packages("numpy", "torch")

import torch
import torch.distributed
import torch.nn as nn

import torch_rank
import train_vs


def rank_main():
    """Runs a rank of the PyTorch side."""
    options = torch_rank.rank_parser().parse_args(sys.argv[2:])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    torch_rank.mark_idle(options)
    model = torch_rank.gpt(options)
    optimizer = torch.optim.AdamW(torch_rank.parameter_groups(model), lr=options.lr, betas=(0.9, 0.95), fused=True)
    parallel = model
    if options.ranks > 1:
        parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)

    def step(tokens, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = parallel(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    torch_rank.train(options, step)


def run_torch(options):
    return train_vs.run_python([sys.executable, __file__, "rank"], options)


def compare(options):
    train_vs.write_batches(options)
    train_vs.export_parameters(options)
    speeds = {"ztoolkit": [], "PyTorch": []}
    runners = [("ztoolkit", train_vs.run_ztoolkit), ("PyTorch", run_torch)]
    print(f"{options.ranks} rank(s), {options.steps - options.warmup} timed steps of {options.batch} x {options.seq} tokens")
    for repetition in range(options.repetitions):
        losses = {}
        for name, runner in runners if repetition % 2 == 0 else reversed(runners):
            result = runner(options)
            speeds[name].append(result["tokens_per_second"])
            losses[name] = result["losses"]
        early = train_vs.largest_difference(losses["ztoolkit"][: options.check], losses["PyTorch"][: options.check])
        late = train_vs.largest_difference(losses["ztoolkit"], losses["PyTorch"])
        print(f"  {repetition + 1}: ztoolkit {speeds['ztoolkit'][-1]:8.0f} tokens/s   PyTorch {speeds['PyTorch'][-1]:8.0f} tokens/s"
              f"   ratio {speeds['ztoolkit'][-1] / speeds['PyTorch'][-1]:.3f}"
              f"   losses differ by {early:.1e} (first {options.check} steps), {late:.1e} (all)", flush=True)
        if not early <= options.tolerance:
            train_vs.give_up(f"losses differ by more than {options.tolerance:g}: the two sides do not compute the same. "
                             f"ztoolkit {losses['ztoolkit'][:3]}, PyTorch {losses['PyTorch'][:3]}")
    median = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"{name:9} median {median[name]:8.0f} tokens/s, spread {100 * train_vs.spread(values):.1f} %")
    print(f"ratio of the medians {median['ztoolkit'] / median['PyTorch']:.3f}; last loss {losses['ztoolkit'][-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8, help="samples per step, over all ranks")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=5, help="number of untimed first steps")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--check", type=int, default=10, help="number of first steps whose losses must agree")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest relative difference of these losses")
    train_vs.add_common_arguments(parser)
    parser.set_defaults(tied=True)
    options = parser.parse_args()
    train_vs.check_ranks(options)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        compare(options)


if __name__ == "__main__":
    rank_main() if sys.argv[1:2] == ["rank"] else main()
