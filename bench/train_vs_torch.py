#!/usr/bin/env python3
"""Tokens/s of ztoolkit and of PyTorch on the same model, the same weights and the same batches, in alternation.

    .venv-oracle/bin/python bench/train_vs_torch.py --ranks 1
    .venv-oracle/bin/python bench/train_vs_torch.py --ranks 2

The model is that of scripts/exp/gpt.lua: a GPT-2 of about 3 M parameters, fp32, AdamW, clipping, one thread a rank. PyTorch runs
eagerly, with DistributedDataParallel over gloo when there are several ranks. Each repetition starts both sides as fresh processes,
the first one in turn. The losses of all steps are compared: a difference above --tolerance of the first --check steps is a failure.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed
import torch.nn as nn
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Block(nn.Module):
    """Pre-norm attention and MLP, as in GPT-2."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, seq, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with learned positions and a head tied to the embedding; returns the mean loss."""

    def __init__(self, layers, hidden, heads, vocab, seq):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.register_buffer("places", torch.arange(seq), persistent=False)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(self.places)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.reshape(-1))


# ztoolkit's parameter names, with {i} for a block, and ours.
NAMES = {
    "embedding.weight": "tokens.weight",
    "embedding.positions": "positions.weight",
    "head.norm.weight": "norm.weight",
    "head.norm.bias": "norm.bias",
    "blocks.{i}.norm1.weight": "blocks.{i}.norm_1.weight",
    "blocks.{i}.norm1.bias": "blocks.{i}.norm_1.bias",
    "blocks.{i}.attention.qkv.weight": "blocks.{i}.qkv.weight",
    "blocks.{i}.attention.qkv.bias": "blocks.{i}.qkv.bias",
    "blocks.{i}.attention.out.weight": "blocks.{i}.proj.weight",
    "blocks.{i}.attention.out.bias": "blocks.{i}.proj.bias",
    "blocks.{i}.norm2.weight": "blocks.{i}.norm_2.weight",
    "blocks.{i}.norm2.bias": "blocks.{i}.norm_2.bias",
    "blocks.{i}.mlp.up.weight": "blocks.{i}.up.weight",
    "blocks.{i}.mlp.up.bias": "blocks.{i}.up.bias",
    "blocks.{i}.mlp.down.weight": "blocks.{i}.down.weight",
    "blocks.{i}.mlp.down.bias": "blocks.{i}.down.bias",
}


def load_parameters(model, folder, layers):
    """Gives `model` the parameters that ztoolkit wrote; each must be used once, each of ours filled."""
    names = {theirs.format(i=i): ours.format(i=i) for theirs, ours in NAMES.items() for i in range(layers)}
    values = numpy.fromfile(folder / "parameters.f32", dtype=numpy.float32)
    state, first = {}, 0
    for entry in json.loads((folder / "parameters.json").read_text()):
        count = int(numpy.prod(entry["shape"]))
        state[names[entry["name"]]] = torch.from_numpy(values[first : first + count].reshape(entry["shape"]).copy())
        first += count
    model.load_state_dict(state, strict=True)


def train_torch(options):
    """A rank of the PyTorch side. Prints the result as JSON on rank 0."""
    rank, ranks = int(os.environ["RANK"]), options.ranks
    torch.set_num_threads(1)
    model = Gpt(options.layers, options.hidden, options.heads, options.vocab, options.seq)
    load_parameters(model, options.folder, options.layers)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), fused=True)
    parallel = model
    if ranks > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    data = torch.from_numpy(numpy.fromfile(options.folder / "batches.i64", dtype=numpy.int64))
    data = data.view(options.steps, ranks, options.batch // ranks, options.seq + 1)[:, rank]

    losses = torch.zeros(options.steps)
    for step in range(options.steps):
        if step == options.warmup:
            if ranks > 1:
                torch.distributed.barrier()
            began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = parallel(data[step, :, :-1], data[step, :, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses[step] = loss.detach()
    if ranks > 1:
        torch.distributed.barrier()
    seconds = time.perf_counter() - began
    if ranks > 1:
        torch.distributed.all_reduce(losses)
        losses /= ranks
    tokens = (options.steps - options.warmup) * options.batch * options.seq
    if rank == 0:
        print(json.dumps({"losses": losses.tolist(), "tokens_per_second": tokens / seconds}), flush=True)
    if ranks > 1:
        torch.distributed.barrier()
        os._exit(0)  # gloo's threads were seen to wait for each other for ever when the process group is destroyed


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def result_of(processes):
    """Waits for all; the JSON that the first one printed. A process that fails or stands still ends the benchmark."""
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    except subprocess.TimeoutExpired as late:
        for process in processes:
            process.kill()
        sys.exit(f"train_vs_torch: {' '.join(late.cmd)} did not end within {late.timeout:.0f} s")
    for process in processes:
        if process.returncode != 0:
            sys.exit(f"train_vs_torch: {' '.join(process.args)} exited with {process.returncode}")
    return json.loads(outputs[0].strip().splitlines()[-1])


def model_arguments(options):
    names = ("layers", "hidden", "heads", "vocab", "seq", "batch", "steps", "warmup", "lr", "folder")
    return [word for name in names for word in (f"--{name}", str(getattr(options, name)))]


def run_torch(options):
    port = free_port()
    command = [sys.executable, __file__, "--worker", "--ranks", str(options.ranks), *model_arguments(options)]
    return result_of([
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(
            RANK=str(rank), WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))
        for rank in range(options.ranks)
    ])


def run_zt(options, *more):
    launcher = ["mpirun", "--oversubscribe", "-n", str(options.ranks)] if options.ranks > 1 and "--export" not in more else []
    command = [*launcher, str(options.ztoolkit), "run", str(ROOT / "bench/train_vs_torch.lua"), *model_arguments(options), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    if "--export" in more:
        if process.wait() != 0:
            sys.exit(f"train_vs_torch: {' '.join(command)} exited with {process.returncode}")
        return None
    return result_of([process])


def write_batches(options):
    """Windows of the corpus at places drawn with a fixed seed."""
    corpus = numpy.load(options.data, mmap_mode="r")
    generator = numpy.random.default_rng(1)
    starts = generator.integers(0, len(corpus) - options.seq - 1, options.steps * options.batch)
    batches = numpy.stack([corpus[start : start + options.seq + 1] for start in starts]).astype(numpy.int64)
    batches.tofile(options.folder / "batches.i64")


def largest_difference(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def compare(options):
    write_batches(options)
    run_zt(options, "--export")
    speeds = {"ztoolkit": [], "PyTorch": []}
    runners = [("ztoolkit", run_zt), ("PyTorch", run_torch)]
    print(f"{options.ranks} rank(s), {options.steps - options.warmup} timed steps of {options.batch} x {options.seq} tokens")
    for repetition in range(options.repetitions):
        losses = {}
        for name, runner in runners if repetition % 2 == 0 else reversed(runners):
            result = runner(options)
            speeds[name].append(result["tokens_per_second"])
            losses[name] = result["losses"]
        early = largest_difference(losses["ztoolkit"][: options.check], losses["PyTorch"][: options.check])
        late = largest_difference(losses["ztoolkit"], losses["PyTorch"])
        print(f"  {repetition + 1}: ztoolkit {speeds['ztoolkit'][-1]:8.0f} tokens/s   PyTorch {speeds['PyTorch'][-1]:8.0f} tokens/s"
              f"   ratio {speeds['ztoolkit'][-1] / speeds['PyTorch'][-1]:.3f}"
              f"   losses differ by {early:.1e} (first {options.check} steps), {late:.1e} (all)", flush=True)
        if not early <= options.tolerance:
            sys.exit(f"train_vs_torch: losses differ by more than {options.tolerance:g}: the two sides do not compute the same. "
                     f"ztoolkit {losses['ztoolkit'][:3]}, PyTorch {losses['PyTorch'][:3]}")
    median = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"{name:9} median {median[name]:8.0f} tokens/s, spread {100 * spread(values):.1f} %")
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
    parser.add_argument("--batch", type=int, default=8, help="samples a step, over all ranks")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=5, help="first steps, not timed")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--check", type=int, default=10, help="steps whose losses must agree")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="relative")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "corpus/gcide.npy")
    parser.add_argument("--ztoolkit", type=pathlib.Path, default=ROOT / "build/release/bin/ztoolkit")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch % options.ranks:
        parser.error(f"--batch {options.batch} does not divide into {options.ranks} ranks")
    if options.worker:
        return train_torch(options)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        compare(options)


if __name__ == "__main__":
    main()
