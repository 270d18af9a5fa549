"""Results of DeepSpeed's own gates for tests/lua/experts/moe_deepspeed_test.lua: top1gating, top2gating and topkgating (k = 3) of
deepspeed.moe.sharded_moe on 1,000 random inputs each, of 24 tokens and 4 experts, in float32.

The test makes the same inputs by `logits_of`. With top1gating's random token selection, the numbers that it draws are those of
`falling`: then the first tokens are kept. (Without the selection, torch.topk decides among equal numbers, in no defined way.)
top2gating does not draw the second expert.

Keys, K = 1, 2, 3: K/kept uint8 [inputs, tokens], bit e: expert e keeps the token; K/balance float32 [inputs], the balancing loss;
K/gates float32 [100, tokens, experts], the weights of the first inputs; K/sum float64 [inputs], the sum of all weights, each times
1 + its index."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import torch
from deepspeed.moe import sharded_moe

import golden

INPUTS, TOKENS, EXPERTS, WHOLE = 1000, 24, 4, 100
FACTORS = (0.25, 0.5, 0.75, 1.0)  # of the inputs in turn


class Numbers:
    """Numbers in (0, 1) by the minimal standard generator of Park and Miller, in exact arithmetic."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = self.state * 48271 % 2147483647
        return self.state / 2147483647


def logits_of(index):
    numbers = Numbers(index + 1)
    for _ in range(8):
        numbers.next()
    return torch.tensor([[(numbers.next() + numbers.next() + numbers.next() - 1.5) * 4 for _ in range(EXPERTS)]
                         for _ in range(TOKENS)], dtype=torch.float32)


def falling(shape):
    return torch.linspace(1, 0.5, shape[0]).unsqueeze(1).expand(shape)


def gate(k, logits, factor):
    """Returns the balancing loss, and the weights [tokens, experts]."""
    if k == 1:
        result = sharded_moe.top1gating(logits, factor, 0, use_rts=True)
    elif k == 2:
        result = sharded_moe.top2gating(logits, factor, 0, top2_2nd_expert_sampling=False)
    else:
        result = sharded_moe.topkgating(logits, k, factor, 0)
    return result[0], result[1].sum(2)


sharded_moe.exp_selection_uniform_map[torch.device("cpu")] = falling
results = {}
for k in (1, 2, 3):
    pairs = [gate(k, logits_of(index), FACTORS[index % len(FACTORS)]) for index in range(INPUTS)]
    gates = torch.stack([weights for _, weights in pairs])
    bits = torch.tensor([1 << expert for expert in range(EXPERTS)])
    results[f"{k}/kept"] = ((gates > 0) * bits).sum(2).to(torch.uint8)
    results[f"{k}/balance"] = torch.stack([balance for balance, _ in pairs])
    results[f"{k}/gates"] = gates[:WHOLE]
    index = torch.arange(1, 1 + TOKENS * EXPERTS, dtype=torch.float64)
    results[f"{k}/sum"] = (gates.double().view(INPUTS, -1) * index).sum(1)
golden.save("moe_deepspeed", results)
