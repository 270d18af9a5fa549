"""Reference mixtures of experts in plain PyTorch, in fp64: outputs, losses and gradients for tests/lua/experts/moe_golden_test.lua.
They follow the papers and moe/README.md, token by token, and use none of the tested code and no library for mixtures.

Keys: CASE/in (the tokens), CASE/cot (weights of the output in the objective), CASE/out, CASE/loss, CASE/grad_in, CASE/load,
CASE/param/NAME, CASE/grad/NAME; CASE/bias, the router's bias after one update. The objective is the sum of out * cot and of the
auxiliary losses of each sample, divided by the number of samples."""

import math

import torch

import golden

SAMPLES, TOKENS, HIDDEN, EXPERTS, FFN = 2, 9, 7, 6, 5
BIAS_RATE = 0.05
torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(17)
results = {}


def randn(*shape, scale=1.0):
    return torch.randn(*shape, generator=generator) * scale


def mlp_params(prefix, activation, bias, experts=()):
    columns = 2 * FFN if activation == "swiglu" else FFN
    params = {f"{prefix}.up.weight": randn(*experts, columns, HIDDEN, scale=0.5),
              f"{prefix}.down.weight": randn(*experts, HIDDEN, FFN, scale=0.5)}
    if bias:
        params[f"{prefix}.up.bias"] = randn(*experts, columns, scale=0.3)
        params[f"{prefix}.down.bias"] = randn(*experts, HIDDEN, scale=0.3)
    return params


def activate(activation, x):
    if activation == "relu":
        return x.clamp_min(0)
    if activation == "swiglu":
        gate, up = x.chunk(2, -1)
        return gate * torch.sigmoid(gate) * up
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def mlp(params, prefix, activation, x, expert=None):
    """The MLP of one row x, of one expert if given."""

    def of(name):
        value = params.get(f"{prefix}.{name}")
        return value if value is None or expert is None else value[expert]

    inner = of("up.weight") @ x
    inner = activate(activation, inner if of("up.bias") is None else inner + of("up.bias"))
    out = of("down.weight") @ inner
    return out if of("down.bias") is None else out + of("down.bias")


def best(values, count):
    """The indices of the largest numbers, the largest first."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]


def allowed_experts(values, groups, top_groups):
    """The experts of the best groups. A group's score is the sum of its two best."""
    size = EXPERTS // groups
    scores = [sum(sorted(values[g * size:(g + 1) * size])[-2:]) for g in range(groups)]
    return {g * size + i for g in best(scores, top_groups) for i in range(size)}


def choose(scores, case, bias):
    """Lists [(expert, ...)] per token of the experts that tokens choose. scores: [tokens, experts]."""
    chosen = []
    for row in (scores.detach() + bias).tolist():
        allowed = allowed_experts(row, case.get("groups", 1), case.get("top_groups", 1))
        chosen.append(best([x if e in allowed else -math.inf for e, x in enumerate(row)], case["top_k"]))
    return chosen


def choose_by_experts(scores, room):
    """The same if each expert chooses `room` tokens of each sample."""
    chosen = [[] for _ in range(len(scores))]
    for expert in range(EXPERTS):
        for first in range(0, len(scores), TOKENS):
            for token in best(scores[first:first + TOKENS, expert].tolist(), room):
                chosen[first + token].append(expert)
    return chosen


def room_of(case, tokens):
    return max(case.get("min", 1), math.ceil(case["capacity"] * tokens * case["top_k"] / EXPERTS))


def without_dropped(chosen, weights, case):
    """The pairs (token, route) that experts have room for, of each sample or of the micro-batch."""
    kept, tokens = set(), TOKENS if case.get("per", "sample") == "sample" else SAMPLES * TOKENS
    for first in range(0, SAMPLES * TOKENS, tokens):
        for expert in range(EXPERTS):
            pairs = [(t, r) for t in range(first, first + tokens) for r, e in enumerate(chosen[t]) if e == expert]
            if case["keep"] == "probability":
                pairs.sort(key=lambda pair: -weights[pair[0]][pair[1]].item())
            kept.update(pairs[:room_of(case, tokens)])
    return kept


def weights_of(logits, scores, chosen, case):
    """A list of weights per token."""
    weights = []
    for token, experts in enumerate(chosen):
        row = logits[token, experts].softmax(-1) if case.get("softmax_after") else scores[token, experts]
        if case.get("normalise") == "selected":
            row = row / row.sum()
        weights.append(list(row * case.get("scale", 1)))
    return weights


def auxiliary(logits, probabilities, chosen, case):
    """The sum of the auxiliary losses over samples."""
    total, load, balanced = 0, torch.zeros(SAMPLES, EXPERTS), torch.zeros(SAMPLES, EXPERTS)
    counted = 1 if case.get("balance_of") == "first" else EXPERTS
    for token, experts in enumerate(chosen):
        for place, expert in enumerate(experts):
            load[token // TOKENS, expert] += 1
            balanced[token // TOKENS, expert] += place < counted
    means = probabilities.view(SAMPLES, TOKENS, EXPERTS).mean(1)
    if case.get("balance_per") == "sample":
        total = total + case["balance"] * EXPERTS * sum((balanced[s] / balanced[s].sum() * means[s]).sum() for s in range(SAMPLES))
    elif "balance" in case:
        total = total + case["balance"] * SAMPLES * EXPERTS * (balanced.sum(0) / balanced.sum() * means.mean(0)).sum()
    if "z" in case:
        squares = torch.log(torch.exp(logits).sum(-1)) ** 2
        total = total + case["z"] * squares.view(SAMPLES, TOKENS).mean(1).sum()
    return total, load.sum(0)


def forward(params, tokens, case, bias):
    """Returns the output [tokens, hidden], the sum of the auxiliary losses, and the load [experts]."""
    activation = case.get("activation", "gelu_tanh")
    logits = tokens @ params["router.weight"].T
    scores = torch.sigmoid(logits) if case.get("score") == "sigmoid" else logits.softmax(-1)
    by_experts = case.get("choice") == "expert"
    chosen = choose_by_experts(scores.detach(), room_of(case, TOKENS)) if by_experts else choose(scores, case, bias)
    weights = weights_of(logits, scores, chosen, case)
    kept = {(t, r) for t, experts in enumerate(chosen) for r in range(len(experts))}
    if "keep" in case:
        kept = without_dropped(chosen, weights, case)
        case["dropped"] = len(tokens) * case["top_k"] - len(kept)
    rows = []
    for token, x in enumerate(tokens):
        routes = [(expert, weights[token][r]) for r, expert in enumerate(chosen[token]) if (token, r) in kept]
        scale = sum(weight for _, weight in routes) if case.get("normalise") == "kept" and routes else 1
        row = sum((weight / scale * mlp(params, "experts", activation, x, expert) for expert, weight in routes), torch.zeros(HIDDEN))
        if case.get("shared"):
            row = row + mlp(params, "shared", activation, x) * torch.sigmoid(params["shared.gate"][0] @ x)
        if case.get("residual"):
            mix = (params["residual.mix.weight"] @ x + params["residual.mix.bias"]).softmax(-1)
            row = row * mix[0] + mlp(params, "residual", activation, x) * mix[1]
        rows.append(row)
    probabilities = scores / scores.sum(-1, keepdim=True)
    losses, load = auxiliary(logits, probabilities, chosen, case)
    return torch.stack(rows), losses, load


def record(name, case):
    activation, bias = case.get("activation", "gelu_tanh"), case.get("bias", True)
    params = {"router.weight": randn(EXPERTS, HIDDEN, scale=0.7), **mlp_params("experts", activation, bias, (EXPERTS,))}
    if case.get("shared"):
        params.update({**mlp_params("shared", activation, bias), "shared.gate": randn(1, HIDDEN)})
    if case.get("residual"):
        params.update({**mlp_params("residual", activation, bias), "residual.mix.weight": randn(2, HIDDEN),
                       "residual.mix.bias": randn(2)})
    tokens, cot = randn(SAMPLES * TOKENS, HIDDEN), randn(SAMPLES, TOKENS, HIDDEN)
    for tensor in [tokens, *params.values()]:
        tensor.requires_grad_(True)
    router_bias = torch.zeros(EXPERTS)
    if case.get("router_bias"):  # as after one step without a change of the parameters
        load = forward(params, tokens, case, router_bias)[2]
        router_bias = BIAS_RATE * torch.sign(load.mean() - load)
        results[f"{name}/bias"] = router_bias
    out, losses, load = forward(params, tokens, case, router_bias)
    objective = ((out.view(SAMPLES, TOKENS, HIDDEN) * cot).sum() + losses) / SAMPLES
    objective.backward()
    results.update({f"{name}/in": tokens, f"{name}/cot": cot, f"{name}/out": out.view(SAMPLES, TOKENS, HIDDEN),
                    f"{name}/loss": objective, f"{name}/grad_in": tokens.grad, f"{name}/load": load,
                    f"{name}/dropped": torch.tensor(float(case.get("dropped", 0)))})
    for key, value in params.items():
        results[f"{name}/param/{key}"], results[f"{name}/grad/{key}"] = value, value.grad


CASES = {
    "softmax": {"top_k": 2, "balance": 0.3, "balance_per": "sample", "z": 0.2},
    "softmax_selected": {"top_k": 2, "normalise": "selected", "balance": 0.3, "balance_per": "batch"},
    "softmax_after": {"top_k": 3, "softmax_after": True, "activation": "swiglu", "bias": False, "z": 0.4},
    "top_1": {"top_k": 1, "activation": "relu", "balance": 0.5, "balance_per": "sample"},
    "sigmoid_bias": {"top_k": 2, "score": "sigmoid", "router_bias": True, "normalise": "selected", "scale": 2.5,
                     "balance": 0.3, "balance_per": "sample"},
    "groups": {"top_k": 2, "score": "sigmoid", "router_bias": True, "groups": 3, "top_groups": 2, "normalise": "selected"},
    "expert_choice": {"top_k": 2, "choice": "expert", "capacity": 1},
    "drop_probability": {"top_k": 2, "capacity": 0.7, "keep": "probability", "normalise": "kept", "balance": 0.3,
                         "balance_per": "sample"},
    "drop_place": {"top_k": 2, "capacity": 0.7, "keep": "place"},
    "drop_micro_batch": {"top_k": 3, "capacity": 0.6, "keep": "place", "per": "micro_batch", "normalise": "selected"},
    "shared": {"top_k": 2, "shared": True, "activation": "swiglu", "bias": False},
    "residual": {"top_k": 1, "residual": True},
    "first_routes": {"top_k": 2, "normalise": "selected", "balance": 0.3, "balance_per": "batch", "balance_of": "first"},
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, case in CASES.items():
        record(name, case)
        print(name, "dropped", case.get("dropped", 0), "load", results[f"{name}/load"].tolist())
    golden.save("moe", results)
