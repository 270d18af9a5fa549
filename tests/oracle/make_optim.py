"""Makes golden files for modules/optim and for the exact sum in zt/execute/gradient_norm.h."""

import itertools
import math
import random
import struct

import torch

import golden

STEPS = 50
ELEMENTS = 37
KEPT = [1, 2, 10, 50]  # numbers of updates after which the parameters are recorded
SCHEDULE_STEPS = 60

# tests/optim/golden_test.cpp has the same list with our names.
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    "adamw_betas": (torch.optim.AdamW, {"lr": 3e-3, "weight_decay": 0.5, "betas": (0.8, 0.95), "eps": 1e-3}),
    "adam": (torch.optim.Adam, {"lr": 1e-2}),
    "adam_l2": (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1}),
    "sgd": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}),
    "sgd_dampening": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.5}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05, "weight_decay": 0.1}),
    "adagrad_start": (torch.optim.Adagrad, {"lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-3}),
}

# tests/optim/tensor_golden_test.cpp has the same list with our names.
TENSOR_OPTIMIZERS = {
    "muon": (torch.optim.Muon, {"lr": 0.02}),
    "muon_plain": (torch.optim.Muon, {"lr": 0.02, "nesterov": False, "momentum": 0.8, "weight_decay": 0, "ns_steps": 3,
                                      "adjust_lr_fn": "match_rms_adamw"}),
    "adafactor": (torch.optim.Adafactor, {"lr": 0.05}),
    "adafactor_decay": (torch.optim.Adafactor, {"lr": 0.05, "beta2_decay": -0.5, "eps": (1e-6, 1e-2), "d": 1.5,
                                                "weight_decay": 0.1}),
}
TENSOR_STEPS = 8
SHAPES = {"wide": (5, 9), "tall": (9, 5), "vector": (7,)}


def make_optimizers():
    """Records parameters in float64 after KEPT updates. The start values and the gradients are exact in float32."""
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(ELEMENTS, generator=generator).double()
    sizes = torch.logspace(-6, 1, ELEMENTS)
    grads = (torch.randn(STEPS, ELEMENTS, generator=generator) * sizes + 0.3 * sizes).double()
    grads[:, 3] = 0
    out = {"start": start, "grads": grads, "kept": torch.tensor(KEPT)}
    for name, (make, options) in OPTIMIZERS.items():
        param = torch.nn.Parameter(start.clone())
        optimizer = make([param], **options)
        kept = []
        for step in range(STEPS):
            param.grad = grads[step].clone()
            optimizer.step()
            if step + 1 in KEPT:
                kept.append(param.detach().clone())
        out[name] = torch.stack(kept)
    golden.save("optim_steps", out)


def in_doubles(self, *sizes):
    return self.clone()


def make_tensor_optimizers():
    """Records whole tensors in float64 after TENSOR_STEPS updates. Muon's GEMMs, which PyTorch makes in bfloat16, are in float64:
    torch.Tensor.bfloat16 does nothing meanwhile."""
    generator = torch.Generator().manual_seed(6)
    out = {}
    bfloat16, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, in_doubles
    for shape_name, shape in SHAPES.items():
        start = torch.randn(shape, generator=generator).double()
        grads = torch.randn(TENSOR_STEPS, *shape, generator=generator).double()
        out[f"{shape_name}.start"], out[f"{shape_name}.grads"] = start, grads
        for name, (make, options) in TENSOR_OPTIMIZERS.items():
            if name.startswith("muon") and len(shape) != 2:
                continue
            param = torch.nn.Parameter(start.clone())
            optimizer = make([param], **options)
            for step in range(TENSOR_STEPS):
                param.grad = grads[step].clone()
                optimizer.step()
            out[f"{shape_name}.{name}"] = param.detach().clone()
    torch.Tensor.bfloat16 = bfloat16
    golden.save("optim_tensors", out)


def rates(make, base):
    """Returns the learning rate of each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    schedule = make(optimizer)
    out = []
    for _ in range(SCHEDULE_STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return torch.tensor(out, dtype=torch.float64)


def after_warmup(start_factor, warmup, make):
    """Returns a schedule: a linear warmup of `warmup` steps, then the schedule that `make` returns."""
    lr = torch.optim.lr_scheduler
    return lambda optimizer: lr.SequentialLR(
        optimizer, [lr.LinearLR(optimizer, start_factor, total_iters=warmup), make(optimizer)], milestones=[warmup])


def make_schedules():
    lr = torch.optim.lr_scheduler
    total = SCHEDULE_STEPS
    out = {
        "warmup_linear": rates(after_warmup(1 / 11, 10, lambda o: lr.LinearLR(o, 1, 0.1, total_iters=30)), 0.4),
        "warmup_cosine": rates(after_warmup(0.25, 8, lambda o: lr.CosineAnnealingLR(o, total - 8, eta_min=0.04)), 0.4),
        "cosine": rates(lambda o: lr.CosineAnnealingLR(o, total), 0.4),
        "step_decay": rates(lambda o: lr.StepLR(o, 7, 0.5), 0.4),
    }
    for strategy, three_phase in itertools.product(("cos", "linear"), (False, True)):
        def one_cycle(optimizer, strategy=strategy, three_phase=three_phase):
            return lr.OneCycleLR(optimizer, 0.4, total + 1, pct_start=0.35, anneal_strategy=strategy, div_factor=20,
                                 final_div_factor=500, three_phase=three_phase)
        out[f"one_cycle_{strategy}_{3 if three_phase else 2}"] = rates(one_cycle, 0.4)
    golden.save("optim_rates", out)


def wide_double(generator):
    """Returns a finite double with random bits: any exponent, including denormal numbers."""
    while True:
        number = struct.unpack("<d", struct.pack("<Q", generator.getrandbits(64)))[0]
        if math.isfinite(number):
            return number


def make_sums():
    """Records rows of numbers and their sums by math.fsum, which rounds the exact sum once."""
    generator = random.Random(11)
    rows = [[wide_double(generator) for _ in range(64)] for _ in range(20)]
    for scale in (1e-310, 1e-5, 1.0, 1e290):  # similar magnitudes, with cancellation
        rows += [[generator.gauss(0, scale) for _ in range(64)] for _ in range(20)]
    sums = [math.fsum(row) for row in rows]
    golden.save("optim_sums", {"numbers": torch.tensor(rows, dtype=torch.float64), "sums": torch.tensor(sums, dtype=torch.float64)})


if __name__ == "__main__":
    make_optimizers()
    make_tensor_optimizers()
    make_schedules()
    make_sums()
