"""Runs a rank of the DeepSpeed side with experts. moe_vs_deepspeed.py starts it with the Python of .venv-deepspeed."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("deepspeed", "numpy", "torch", environment=".venv-deepspeed", starter="moe_vs_deepspeed.py")

import torch
import torch.nn as nn
import torch.nn.functional as F
from deepspeed.moe.layer import MoE

import torch_rank
import train_vs_deepspeed_rank


class Expert(nn.Module):
    """The MLP of torch_rank.Block."""

    def __init__(self, hidden):
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class ExpertBlock(torch_rank.Block):
    """A block with experts. Each rank holds an equal part of them. No token is dropped and nothing is random."""

    def __init__(self, options):
        super().__init__(options.hidden, options.heads)
        del self.up, self.down
        self.moe = MoE(options.hidden, Expert(options.hidden), options.experts, ep_size=options.ranks, k=options.top_k,
                       drop_tokens=False, use_rts=False, top2_2nd_expert_sampling=False)

    def mlp(self, x):
        out, self.balance, _ = self.moe(x)
        return out


class Gpt(torch_rank.Gpt):
    """The model of torch_rank with experts in the blocks 1, 3, 5 and so on. forward() returns the loss that train_vs.lua
    minimizes."""

    def __init__(self, options):
        super().__init__(options.layers, options.hidden, options.heads, options.vocab, options.seq, options.tied)
        self.aux_loss = options.aux_loss
        for index in range(1, options.layers, 2):
            self.blocks[index] = ExpertBlock(options)

    def forward(self, tokens, labels):
        loss = super().forward(tokens, labels)
        return loss + self.aux_loss * sum(block.balance for block in self.blocks[1::2])


def places(options, rank):
    """Returns the function `places` for torch_rank.load: rank `rank` gets its part of the experts."""
    own = options.experts // options.ranks

    def find(name, values):
        if ".router." in name:
            return [(name.replace("router.weight", "moe.deepspeed_moe.gate.wg.weight"), values)]
        if ".experts." not in name:
            return [(torch_rank.torch_name(name), values)]
        inner = "moe.deepspeed_moe.experts.deepspeed_experts"
        return [(name.replace("experts", f"{inner}.{index}"), values[rank * own + index]) for index in range(own)]

    return find


def parameter_groups(model):
    """Returns the groups of train_vs_deepspeed.py with the names that DeepSpeed requires of models with experts."""
    return [{**group, "name": name} for group, name in zip(torch_rank.parameter_groups(model), ("matrices", "vectors"))]


def main():
    parser = train_vs_deepspeed_rank.rank_parser()
    parser.add_argument("--experts", type=int)
    parser.add_argument("--top_k", type=int)
    parser.add_argument("--aux_loss", type=float)
    options = parser.parse_args()
    train_vs_deepspeed_rank.begin(options)
    model = Gpt(options)
    torch_rank.load(model, options, places(options, torch.distributed.get_rank()))
    engine = train_vs_deepspeed_rank.engine_of(model, parameter_groups(model), options)
    torch_rank.train(options, train_vs_deepspeed_rank.step_of(engine))


if __name__ == "__main__":
    main()
