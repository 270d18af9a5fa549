"""Reference layers in plain PyTorch, in fp64: forward and gradients for tests/nn. They follow the papers and the layouts that
modules/nn documents, with explicit softmax and norms, and use none of the tested code.

Keys: CASE/param/NAME, CASE/in/NAME, CASE/batch/NAME, CASE/cot (cotangent: weights of the output in the objective), CASE/out,
CASE/grad/NAME, CASE/grad_in/NAME, CASE/loss."""

import math

import torch

import golden

SAMPLES, SEQ = 3, 7
torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(7)
results = {}


def randn(*shape, scale=1.0):
    return torch.randn(*shape, generator=generator) * scale


def integers(high, *shape):
    return torch.randint(high, shape, generator=generator)


def record(case, function, params, inputs=None, batch=None):
    """Records a case. function(params, inputs, batch) returns (output or None, loss or None)."""
    inputs, batch = inputs or {}, batch or {}
    for tensor in [*params.values(), *inputs.values()]:
        tensor.requires_grad_(True)
    out, loss = function(params, inputs, batch)
    objective = 0
    if out is not None:
        cot = randn(*out.shape)
        results[f"{case}/cot"], results[f"{case}/out"] = cot, out
        objective = objective + (out * cot).sum()
    if loss is not None:
        results[f"{case}/loss"] = loss
        objective = objective + loss
    objective.backward()
    for kind, tensors in (("param", params), ("in", inputs)):
        grad = "grad" if kind == "param" else "grad_in"
        for name, tensor in tensors.items():
            results[f"{case}/{kind}/{name}"] = tensor
            results[f"{case}/{grad}/{name}"] = tensor.grad
    for name, tensor in batch.items():
        results[f"{case}/batch/{name}"] = tensor


def sub(params, prefix):
    return {name[len(prefix):]: value for name, value in params.items() if name.startswith(prefix)}


def prefixed(prefix, params):
    return {prefix + name: value for name, value in params.items()}


def linear(p, x):
    return x @ p["weight"].T + (p["bias"] if "bias" in p else 0)


def linear_params(fan_in, fan_out, bias):
    p = {"weight": randn(fan_out, fan_in, scale=0.3)}
    if bias:
        p["bias"] = randn(fan_out, scale=0.3)
    return p


def norm(p, x, kind, eps=1e-5):
    if kind == "none":
        return x
    if kind == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
    return x * p["weight"] + (p["bias"] if "bias" in p else 0)


def norm_params(hidden, kind, bias=True):
    p = {"weight": 1 + randn(hidden, scale=0.2)}
    if kind == "layernorm" and bias:
        p["bias"] = randn(hidden, scale=0.2)
    return p


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(x, positions, base):
    """x: [samples, heads, seq, head_dim]; positions: [samples, seq]."""
    dim = x.shape[-1]
    inverse = 1.0 / base ** (torch.arange(0, dim, 2).double() / dim)
    angles = positions[:, None, :, None].double() * inverse
    angles = torch.cat((angles, angles), dim=-1)
    return x * angles.cos() + rotate_half(x) * angles.sin()


def attention(p, x, batch, heads, kv_heads, head_dim, causal=True, base=None, norm_eps=1e-5):
    samples, seq, _ = x.shape
    q, k, v = linear(sub(p, "qkv."), x).split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=-1)
    q, k, v = (t.view(samples, seq, -1, head_dim).transpose(1, 2) for t in (q, k, v))
    if "q_norm.weight" in p:
        q, k = norm(sub(p, "q_norm."), q, "rmsnorm", norm_eps), norm(sub(p, "k_norm."), k, "rmsnorm", norm_eps)
    if base:
        positions = batch.get("positions", torch.arange(seq).expand(samples, seq))
        q, k = rotary(q, positions, base), rotary(k, positions, base)
    k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    visible = torch.ones(samples, 1, seq, seq, dtype=torch.bool)
    if causal:
        visible = visible.tril()
    if "segments" in batch:
        visible = visible & (batch["segments"][:, None, :, None] == batch["segments"][:, None, None, :])
    scores = (q @ k.transpose(2, 3) / math.sqrt(head_dim)).masked_fill(~visible, float("-inf"))
    out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(samples, seq, heads * head_dim)
    return linear(sub(p, "out."), out)


def attention_params(hidden, heads, kv_heads, head_dim, bias, qk_norm=False):
    p = {**prefixed("qkv.", linear_params(hidden, (heads + 2 * kv_heads) * head_dim, bias)),
         **prefixed("out.", linear_params(heads * head_dim, hidden, bias))}
    if qk_norm:
        p.update({**prefixed("q_norm.", norm_params(head_dim, "rmsnorm")), **prefixed("k_norm.", norm_params(head_dim, "rmsnorm"))})
    return p


def activate(x, kind):
    if kind == "swiglu":
        gate, up = x.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up
    if kind == "gelu_tanh":
        return torch.nn.functional.gelu(x, approximate="tanh")
    return {"gelu": torch.nn.functional.gelu, "relu": torch.relu}[kind](x)


def mlp(p, x, kind):
    return linear(sub(p, "down."), activate(linear(sub(p, "up."), x), kind))


def mlp_params(hidden, ffn, kind, bias):
    return {**prefixed("up.", linear_params(hidden, ffn * (2 if kind == "swiglu" else 1), bias)),
            **prefixed("down.", linear_params(ffn, hidden, bias))}


class Family:
    """GPT-2 or Llama at a small odd size. qk_norm: with a norm of the query heads and key heads, as in Qwen3."""

    def __init__(self, llama, qk_norm=False):
        self.qk_norm = qk_norm
        self.norm = "rmsnorm" if llama else "layernorm"
        self.activation = "swiglu" if llama else "gelu_tanh"
        self.bias = not llama
        self.hidden, self.heads, self.head_dim = (18, 3, 6) if llama else (15, 3, 5)
        self.kv_heads = 1 if llama else 3
        self.ffn = 13 if llama else 4 * self.hidden
        self.base = 10000.0 if llama else None

    def block_params(self):
        return {**prefixed("norm1.", norm_params(self.hidden, self.norm)),
                **prefixed("attention.", attention_params(self.hidden, self.heads, self.kv_heads, self.head_dim, self.bias,
                                                          self.qk_norm)),
                **prefixed("norm2.", norm_params(self.hidden, self.norm)),
                **prefixed("mlp.", mlp_params(self.hidden, self.ffn, self.activation, self.bias))}

    def block(self, p, h, batch):
        branch = norm(sub(p, "norm1."), h, self.norm)
        h = h + attention(sub(p, "attention."), branch, batch, self.heads, self.kv_heads, self.head_dim, base=self.base)
        return h + mlp(sub(p, "mlp."), norm(sub(p, "norm2."), h, self.norm), self.activation)


def cross_entropy(logits, labels):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="sum")


def labels_with_gaps(vocab):
    labels = integers(vocab, SAMPLES, SEQ)
    labels[0, :3] = -100
    labels[2, -1] = -100
    return labels


def simple_layers():
    for name, bias in (("linear", True), ("linear_no_bias", False)):
        record(name, lambda p, i, b: (linear(p, i["h"]), None), linear_params(9, 5, bias), {"h": randn(SAMPLES, SEQ, 9)})
    for kind in ("layernorm", "rmsnorm"):
        record(kind, lambda p, i, b, kind=kind: (norm(p, i["h"], kind), None), norm_params(37, kind), {"h": randn(SAMPLES, SEQ, 37)})
    for kind in ("gelu", "gelu_tanh", "relu", "swiglu"):
        record(f"mlp_{kind}", lambda p, i, b, kind=kind: (mlp(p, i["h"], kind), None), mlp_params(9, 19, kind, True),
               {"h": randn(SAMPLES, SEQ, 9, scale=2)})
    tables = {"weight": randn(11, 6), "positions": randn(SEQ + 2, 6)}
    record("embedding", lambda p, i, b: (p["weight"][b["tokens"]] + p["positions"][:SEQ], None), tables,
           batch={"tokens": integers(11, SAMPLES, SEQ)})
    tables = {"weight": randn(11, 6), "positions": randn(SEQ + 2, 6)}
    record("embedding_positions", lambda p, i, b: (p["weight"][b["tokens"]] + p["positions"][b["positions"]], None), tables,
           batch={"tokens": integers(11, SAMPLES, SEQ), "positions": integers(SEQ + 2, SAMPLES, SEQ)})


def attention_layers():
    def case(name, hidden, heads, kv_heads, head_dim, bias, batch=None, **options):
        record(name, lambda p, i, b: (attention(p, i["h"], b, heads, kv_heads, head_dim, **options), None),
               attention_params(hidden, heads, kv_heads, head_dim, bias), {"h": randn(SAMPLES, SEQ, hidden)}, batch)

    packed = {"segments": torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0] * 7, [0, 1, 2, 2, 3, 3, 3]]),
              "positions": torch.tensor([[0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 0, 1, 2]])}
    case("attention", 15, 3, 3, 5, True)
    case("attention_rotary_grouped", 18, 4, 2, 6, False, base=10000.0)
    case("attention_bidirectional", 15, 3, 3, 5, True, causal=False)
    case("attention_packed", 18, 3, 1, 6, False, dict(packed), base=500.0)
    case("attention_packed_bidirectional", 15, 3, 3, 5, True, {"segments": packed["segments"]}, causal=False)


def families():
    for name, llama in (("gpt2", False), ("llama", True)):
        family = Family(llama)
        record(f"block_{name}", lambda p, i, b, f=family: (f.block(p, i["h"], b), None), family.block_params(),
               {"h": randn(SAMPLES, SEQ, family.hidden)})
        model(f"model_{name}", family, vocab=23, layers=2)


def model(case, family, vocab, layers):
    tied = family.norm == "layernorm"
    params = {"embedding.weight": randn(vocab, family.hidden)}
    if tied:
        params["embedding.positions"] = randn(SEQ, family.hidden)
    for i in range(layers):
        params.update(prefixed(f"blocks.{i}.", family.block_params()))
    params.update(prefixed("head.norm.", norm_params(family.hidden, family.norm)))
    if not tied:
        params["head.weight"] = randn(vocab, family.hidden, scale=0.5)

    def forward(p, _, b):
        h = p["embedding.weight"][b["tokens"]]
        if tied:
            h = h + p["embedding.positions"]
        for i in range(layers):
            h = family.block(sub(p, f"blocks.{i}."), h, b)
        h = norm(sub(p, "head.norm."), h, family.norm)
        return None, cross_entropy(h @ p["embedding.weight" if tied else "head.weight"].T, b["labels"])

    record(case, forward, params, batch={"tokens": integers(vocab, SAMPLES, SEQ), "labels": labels_with_gaps(vocab)})


def losses():
    record("cross_entropy", lambda p, i, b: (None, cross_entropy(i["h"], b["labels"])), {},
           {"h": randn(SAMPLES, SEQ, 21, scale=4)}, {"labels": labels_with_gaps(21)})
    for kind, bias in (("none", False), ("layernorm", False), ("rmsnorm", True)):
        params = linear_params(9, 21, bias)
        if kind != "none":
            params.update(prefixed("norm.", norm_params(9, kind)))
        record(f"lm_loss_{kind}",
               lambda p, i, b, kind=kind: (None, cross_entropy(linear(p, norm(sub(p, "norm."), i["h"], kind)), b["labels"])),
               params, {"h": randn(SAMPLES, SEQ, 9, scale=2)}, {"labels": labels_with_gaps(21)})


def grouped_mlps():
    """A field of the batch holds the number of rows of each group."""
    group_rows = torch.tensor([4, 0, 3])

    def forward(p, inputs, _, kind):
        groups = inputs["h"].split(group_rows.tolist())
        return torch.cat([mlp({name: tensor[g] for name, tensor in p.items()}, rows, kind) for g, rows in enumerate(groups)]), None

    for kind, bias in (("swiglu", False), ("gelu", True)):
        groups = [mlp_params(9, 13, kind, bias) for _ in group_rows]
        params = {name: torch.stack([group[name] for group in groups]) for name in groups[0]}
        record(f"grouped_mlp_{kind}", lambda p, i, b, kind=kind: forward(p, i, b, kind), params, {"h": randn(7, 9)},
               {"group_rows": group_rows})


def head_norms():
    record("attention_qk_norm", lambda p, i, b: (attention(p, i["h"], b, 4, 2, 6, base=10000.0, norm_eps=1e-6), None),
           attention_params(18, 4, 2, 6, False, qk_norm=True), {"h": randn(SAMPLES, SEQ, 18)})
    record("attention_qk_norm_eps", lambda p, i, b: (attention(p, i["h"], b, 3, 3, 5, norm_eps=0.1), None),
           attention_params(15, 3, 3, 5, True, qk_norm=True), {"h": randn(SAMPLES, SEQ, 15)})
    model("model_qk_norm", Family(llama=True, qk_norm=True), vocab=23, layers=2)


simple_layers()
attention_layers()
losses()
families()
head_norms()
grouped_mlps()
golden.save("nn", results)
