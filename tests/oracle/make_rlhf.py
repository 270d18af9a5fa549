"""Makes the golden file of zt.rlhf.loss: losses of sequences, one after the other, and their gradients by autograd in float64.

The tables have a row per sequence: `logprobs`, `entropy` and `logits` of its answer's tokens, `values` of all its positions.
Sequence 2 n is the chosen answer of pair n, 2 n + 1 the rejected one. tests/lua/rlhf/losses_test.lua has the same cases.
"""

import torch
import torch.nn.functional as F

import golden

PROMPTS = [3, 3, 1, 1, 4, 4, 2, 2]
ANSWERS = [4, 6, 1, 3, 5, 5, 2, 1]
SAME = [2, 0, 3, 0]  # tokens at which both answers of a pair begin alike
PTX = [5, 3]  # lengths of two sequences of pretraining text
CLASSES, TOP, LONGEST = 7, 3, 6
MAX_TOKENS = 6

generator = torch.Generator().manual_seed(11)


def randn(*size):
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def tokens():
    """Token ids of all positions, [sequences, 10]."""
    ids = torch.randint(1, 100, (len(ANSWERS), 10), generator=generator)
    for pair, same in enumerate(SAME):
        alike = PROMPTS[2 * pair] + same
        ids[2 * pair + 1, :alike] = ids[2 * pair, :alike]
        if alike < min(PROMPTS[2 * pair] + n for n in ANSWERS[2 * pair:2 * pair + 2]):
            ids[2 * pair + 1, alike] = ids[2 * pair, alike] + 1
    return ids


n = len(ANSWERS)
OLD = -randn(n, LONGEST).abs() - 0.1
TABLES = {
    "logprobs": OLD + 0.4 * randn(n, LONGEST),
    "entropy": randn(n, LONGEST).abs(),
    "values": randn(n, 10),
    "logits": randn(n, LONGEST, CLASSES),
    "ptx": -randn(len(PTX), LONGEST).abs(),
}
FIELDS = {
    "tokens": tokens(),
    "old_logprobs": OLD,
    "ref_logprobs": OLD + 0.3 * randn(n, LONGEST),
    "advantages": 1.5 * randn(n, LONGEST),
    "correction": 2 * torch.rand(n, LONGEST, generator=generator, dtype=torch.float64),
    "returns": randn(n, LONGEST),
    "old_values": TABLES["values"][:, :LONGEST] + 0.3 * randn(n, LONGEST),
    "teacher_logits": 1.5 * randn(n, LONGEST, CLASSES),
}


def mean(by_sequence, kind):
    """The mean of the losses of tokens, a list of tensors."""
    if kind == "token":
        return torch.cat(by_sequence).sum() / sum(ANSWERS)
    if kind == "sequence":
        return sum(losses.mean() for losses in by_sequence) / n
    return sum(losses.sum() / MAX_TOKENS for losses in by_sequence) / n


def policy(tables, *, low=0.2, high=0.2, dual=None, entropy=0, kl=None, coefficient=0.1, corrected=False, level="token",
           kind="token", is_corrected_by_sampler=False):
    """The objective of PPO and GRPO, from the formulas of the papers."""
    all_losses = []
    for i, length in enumerate(ANSWERS):
        log_p, old = tables["logprobs"][i, :length], FIELDS["old_logprobs"][i, :length]
        advantage = FIELDS["advantages"][i, :length]
        ratio = torch.exp(log_p - old)
        if level == "sequence":
            ratio = torch.exp((log_p - old).mean()).expand(length)
        surrogate = torch.minimum(ratio * advantage, torch.clamp(ratio, 1 - low, 1 + high) * advantage)
        if dual:
            surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual * advantage), surrogate)
        losses = -surrogate
        if is_corrected_by_sampler:
            losses = losses * FIELDS["correction"][i, :length]
        if kl:
            d = log_p - FIELDS["ref_logprobs"][i, :length]
            estimate = {"k2": d ** 2 / 2, "k3": torch.exp(-d) - 1 + d}[kl]
            losses = losses + coefficient * (estimate * ratio if corrected else estimate)
        all_losses.append(losses - entropy * tables["entropy"][i, :length])
    return mean(all_losses, kind)


def value(tables, *, clip=0.2, kind="token", coefficient=1):
    all_losses = []
    for i, length in enumerate(ANSWERS):
        first = PROMPTS[i] - 1  # the position whose label is the first token of the answer
        v, old = tables["values"][i, first:first + length], FIELDS["old_values"][i, :length]
        returns = FIELDS["returns"][i, :length]
        losses = (v - returns) ** 2
        if clip:
            losses = torch.maximum(losses, (torch.clamp(v, old - clip, old + clip) - returns) ** 2)
        all_losses.append(coefficient * 0.5 * losses)
    return mean(all_losses, kind)


def ppo_ptx(tables, *, coefficient):
    text = sum(-tables["ptx"][i, :length].mean() for i, length in enumerate(PTX)) / len(PTX)
    return policy(tables) + coefficient * text


def reward(tables, *, margin=0, center=0, at="last"):
    total = 0
    for pair in range(n // 2):
        chosen, rejected = 2 * pair, 2 * pair + 1
        sizes = [PROMPTS[i] + ANSWERS[i] for i in (chosen, rejected)]
        c, r = (tables["values"][i, :size] for i, size in zip((chosen, rejected), sizes))
        if at == "last":
            c, r = c[-1:], r[-1:]
        else:
            shorter = min(sizes)
            differ = (FIELDS["tokens"][chosen, :shorter] != FIELDS["tokens"][rejected, :shorter]).nonzero()
            first = int(differ[0]) if len(differ) else shorter
            c, r = c[first:shorter], r[first:shorter]
        losses = -F.logsigmoid(c - r - margin) + center * (c + r) ** 2
        total = total + (losses.mean() if len(losses) else 0)
    return total / (n // 2)


def differences(tables, normalise):
    """log p - log p of the reference of both answers of each pair, [pairs, 2]."""
    d = []
    for i, length in enumerate(ANSWERS):
        difference = tables["logprobs"][i, :length] - FIELDS["ref_logprobs"][i, :length]
        d.append(difference.mean() if normalise else difference.sum())
    return torch.stack(d).view(-1, 2)


def dpo(tables, *, beta=0.1, kind="sigmoid", smoothing=0, normalise=False, sft=0):
    d = differences(tables, normalise or kind == "ipo")
    h = d[:, 0] - d[:, 1]
    if kind == "sigmoid":
        losses = -(1 - smoothing) * F.logsigmoid(beta * h) - smoothing * F.logsigmoid(-beta * h)
    elif kind == "robust":
        losses = (-(1 - smoothing) * F.logsigmoid(beta * h) + smoothing * F.logsigmoid(-beta * h)) / (1 - 2 * smoothing)
    elif kind == "hinge":
        losses = torch.relu(1 - beta * h)
    elif kind == "ipo":
        losses = (h - 1 / (2 * beta)) ** 2
    else:
        z = divergence()
        losses = (1 - torch.sigmoid(beta * (d[:, 0] - z)) + 1 - torch.sigmoid(beta * (z - d[:, 1]))) / 2
    nll = torch.stack([-tables["logprobs"][2 * i, :ANSWERS[2 * i]].mean() for i in range(n // 2)])
    return (losses + sft * nll).mean()


def divergence():
    """z of KTO: the mean of d over the batch, at least 0; a constant."""
    return torch.relu(differences(TABLES, False).mean()).detach()


def distil(tables, *, kind="forward", beta=0.5, temperature=1, top=None, mean_of="token"):
    all_losses = []
    for i, length in enumerate(ANSWERS):
        teacher = torch.softmax(FIELDS["teacher_logits"][i, :length] / temperature, -1)
        student = torch.softmax(tables["logits"][i, :length] / temperature, -1)
        if top:
            p, ids = teacher.topk(top, -1)
            q = student.gather(-1, ids)
            teacher, student = (torch.cat([x, 1 - x.sum(-1, keepdim=True)], -1) for x in (p, q))
        if kind == "forward":
            losses = (teacher * (teacher / student).log()).sum(-1)
        elif kind == "reverse":
            losses = (student * (student / teacher).log()).sum(-1)
        else:
            m = beta * teacher + (1 - beta) * student
            losses = beta * (teacher * (teacher / m).log()).sum(-1) + (1 - beta) * (student * (student / m).log()).sum(-1)
        all_losses.append(losses)
    return mean(all_losses, mean_of)


CASES = {
    "ppo": lambda t: policy(t),
    "ppo_dual": lambda t: policy(t, dual=1.5),
    "ppo_entropy": lambda t: policy(t, entropy=0.02, kind="sequence"),
    "ppo_ptx": lambda t: ppo_ptx(t, coefficient=0.7),
    "grpo_k3": lambda t: policy(t, kl="k3", kind="sequence"),
    "grpo_k2": lambda t: policy(t, kl="k2", coefficient=0.3, low=0.1, high=0.3),
    "grpo_corrected": lambda t: policy(t, kl="k3", corrected=True, kind="constant"),
    "gspo": lambda t: policy(t, level="sequence", low=0.05, high=0.1, kind="sequence"),
    "gspo_token": lambda t: policy(t, level="sequence", low=0.05, high=0.1),
    "grpo_off_policy": lambda t: policy(t, is_corrected_by_sampler=True),
    "value": lambda t: value(t),
    "value_sequence": lambda t: value(t, clip=0, kind="sequence", coefficient=0.5),
    "value_constant": lambda t: value(t, kind="constant"),
    "reward": lambda t: reward(t),
    "reward_margin": lambda t: reward(t, margin=0.5, center=0.01),
    "reward_divergence": lambda t: reward(t, at="divergence"),
    "dpo": lambda t: dpo(t),
    "dpo_smooth": lambda t: dpo(t, smoothing=0.2, normalise=True, beta=0.5),
    "dpo_robust": lambda t: dpo(t, kind="robust", smoothing=0.2, sft=0.3),
    "dpo_hinge": lambda t: dpo(t, kind="hinge", beta=0.7),
    "dpo_ipo": lambda t: dpo(t, kind="ipo", beta=0.4),
    "dpo_kto": lambda t: dpo(t, kind="kto", beta=0.6),
    "distil": lambda t: distil(t),
    "distil_reverse": lambda t: distil(t, kind="reverse", temperature=2),
    "distil_jsd": lambda t: distil(t, kind="jsd", beta=0.3, mean_of="sequence"),
    "distil_top": lambda t: distil(t, kind="reverse", top=TOP),
    "distil_top_jsd": lambda t: distil(t, kind="jsd", top=TOP, temperature=1.3),
}


def main():
    top = (FIELDS["teacher_logits"]).log_softmax(-1).topk(TOP, -1)
    warm = (FIELDS["teacher_logits"] / 1.3).log_softmax(-1).topk(TOP, -1)
    out = {"prompts": torch.tensor(PROMPTS), "answers": torch.tensor(ANSWERS), "ptx_lengths": torch.tensor(PTX),
           "kl": divergence().reshape(1), "field/teacher_tokens": top.indices, "field/teacher_logprobs": top.values,
           "field/warm_teacher_logprobs": warm.values}
    out.update({f"table/{name}": table for name, table in TABLES.items()})
    out.update({f"field/{name}": field for name, field in FIELDS.items()})
    for case, objective in CASES.items():
        tables = {name: table.clone().requires_grad_() for name, table in TABLES.items()}
        loss = objective(tables)
        loss.backward()
        out[f"{case}/loss"] = loss.reshape(1)
        for name, table in tables.items():
            if table.grad is not None:
                out[f"{case}/gradient/{name}"] = table.grad
    golden.save("rlhf", out)


main()
