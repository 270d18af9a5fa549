"""Functions for a rank of the PyTorch side or of the DeepSpeed side: ztoolkit's GPT in PyTorch with the weights that ztoolkit
wrote, the training loop, and the files that train_vs.py reads."""

import argparse
import json
import math
import os
import pathlib
import re
import sys
import time

import needs

needs.packages("numpy", "torch")

import numpy
import torch
import torch.distributed
import torch.nn as nn
import torch.nn.functional as F

from train_vs import held_bytes


def rank_parser():
    """Returns a parser for the arguments of train_vs.model_arguments. `ranks` comes from the environment."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "heads", "vocab", "seq", "batch", "steps", "warmup"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--tied", action="store_true")
    parser.set_defaults(ranks=int(os.environ.get("WORLD_SIZE", 1)))
    return parser


class Block(nn.Module):
    """Pre-norm attention and MLP, as in GPT-2. Ranks may cut its matrices by heads and by columns of the MLP: `qkv` then returns
    [batch, seq, 3 * heads of the rank * width]."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.width = hidden // heads
        self.norm_1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, -1, self.width)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))

    def mlp(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Embedding(nn.Module):
    """A row per token plus a row per place: [batch, seq] -> [batch, seq, hidden]."""

    def __init__(self, hidden, vocab, seq):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq, hidden)
        self.register_buffer("places", torch.arange(seq), persistent=False)

    def forward(self, tokens):
        return self.tokens(tokens) + self.positions(self.places)


class Head(nn.Module):
    """Norm and logits: [batch, seq, hidden] -> [batch, seq, vocab] in fp32."""

    def __init__(self, hidden, vocab):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.linear = nn.Linear(hidden, vocab, bias=False)

    def forward(self, x):
        return self.linear(self.norm(x)).float()


def cross_entropy(logits, labels):
    """Returns the mean loss of logits [batch, seq, vocab] and labels [batch, seq]."""
    return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.reshape(-1))


class Gpt(nn.Module):
    """GPT-2 with learned positions. forward() returns the mean loss, computed in fp32."""

    def __init__(self, layers, hidden, heads, vocab, seq, tied):
        super().__init__()
        self.embedding = Embedding(hidden, vocab, seq)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.head = Head(hidden, vocab)
        if tied:
            self.head.linear.weight = self.embedding.tokens.weight

    def layers(self):
        """Returns the layers in order, one per position of ztoolkit's model."""
        return [self.embedding, *self.blocks, self.head]

    def forward(self, tokens, labels):
        x = tokens
        for layer in self.layers():
            x = layer(x)
        return cross_entropy(x, labels)


# By ztoolkit's parameter names: the names in Gpt. {i} is the number of a block.
NAMES = {
    "embedding.weight": "embedding.tokens.weight",
    "embedding.positions": "embedding.positions.weight",
    "head.norm.weight": "head.norm.weight",
    "head.norm.bias": "head.norm.bias",
    "head.weight": "head.linear.weight",
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


def gpt(options):
    """Returns the model with the parameters that ztoolkit wrote. Exits if the two sets of parameters do not match."""
    model = Gpt(options.layers, options.hidden, options.heads, options.vocab, options.seq, options.tied)
    load(model, options, lambda name, values: [(torch_name(name), values)])
    return model


def torch_name(name):
    """Returns the name in Gpt of ztoolkit's parameter `name`."""
    block = re.match(r"blocks\.(\d+)\.", name)
    if not block:
        return NAMES[name]
    return NAMES["blocks.{i}." + name[block.end():]].format(i=block[1])


def load(model, options, places):
    """Copies the parameters that ztoolkit wrote into the model. `places(name, values)` returns a list of pairs: the name of a
    parameter of the model, and its values. Exits if a parameter of the model gets none, or if the files do not match."""
    values = torch.from_numpy(numpy.fromfile(options.folder / "parameters.f32", dtype=numpy.float32))
    missing, first = dict(model.named_parameters()), 0
    for entry in json.loads((options.folder / "parameters.json").read_text()):
        count = math.prod(entry["shape"])
        for name, part in places(entry["name"], values[first : first + count].view(entry["shape"])):
            missing.pop(name).data.copy_(part)
        first += count
    if missing or first != values.numel():
        sys.exit(f"ztoolkit's parameters do not match the model's: {sorted(missing)} are missing")


def parameter_groups(model):
    """Returns the groups of optim.adamw: weight decay for matrices, none for vectors."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def rank_batches(options, rank, replicas):
    """Returns this rank's tokens, [steps, samples of this rank, seq + 1]."""
    data = torch.from_numpy(numpy.fromfile(options.folder / "batches.i64", dtype=numpy.int64))
    return data.view(options.steps, replicas, options.batch // replicas, options.seq + 1)[:, rank % replicas]


def mark(options, name, content=""):
    (options.folder / f"run/{name}.{os.environ['RANK']}").write_text(content)


def mark_idle(options):
    mark(options, "idle", json.dumps({"pid": os.getpid(), "bytes": held_bytes()}))


def train(options, step, replicas=None):
    """Runs all steps on one rank. `step(tokens, labels)` trains and returns its loss. Rank 0 writes the result. A step's samples
    are divided among `replicas` ranks, by default all. With one replica, a pipeline or cut matrices, every rank has all samples, and
    all ranks but one return 0."""
    rank, replicas = torch.distributed.get_rank(), replicas or options.ranks
    data = rank_batches(options, rank, replicas)
    losses = torch.zeros(options.steps)
    mark(options, "ready")
    for index in range(options.steps):
        if index == options.warmup:
            mark(options, "timed")
            torch.distributed.barrier()
            began = time.perf_counter()
        losses[index] = step(data[index, :, :-1], data[index, :, 1:]).detach()
        if index == 0:
            first_step_at = time.monotonic()
    torch.distributed.barrier()
    seconds = time.perf_counter() - began
    torch.distributed.all_reduce(losses)
    tokens = (options.steps - options.warmup) * options.batch * options.seq
    if rank == 0:
        losses /= replicas
        result = {"losses": losses.tolist(), "tokens_per_second": tokens / seconds, "first_step_at": first_step_at}
        (options.folder / "run/result.json").write_text(json.dumps(result))
    torch.distributed.barrier()
    os._exit(0)  # skips destroying the process group, in which gloo's threads sometimes deadlock
