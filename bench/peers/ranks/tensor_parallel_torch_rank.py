"""Runs a rank of PyTorch's tensor parallelism (torch.distributed.tensor.parallel), over gloo. tensor_parallel.py starts it."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("numpy", "torch", starter="tensor_parallel.py")

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleOutput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

import torch_rank


def rows_by_rank(values, ranks):
    """Returns the rows of a `qkv` weight or bias in the order rank, matrix, head in place of matrix, rank, head. Equal parts of it
    then hold the queries, keys and values of the same heads."""
    return values.view(3, ranks, -1, *values.shape[1:]).transpose(0, 1).reshape(values.shape)


def plan_of(options):
    """Returns the styles of parallelize_module by module. With sequence parallelism, each rank holds a share of the tokens of the
    residual stream and of the norms."""
    stream = Shard(1) if options.sequence_parallel else Replicate()
    plan = {
        "embedding.tokens": RowwiseParallel(input_layouts=Replicate()),
        "head.linear": ColwiseParallel(input_layouts=stream, use_local_output=False),
    }
    if options.sequence_parallel:
        plan["embedding"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=stream)
        plan["head.norm"] = SequenceParallel()
    for i in range(options.layers):
        block = f"blocks.{i}."
        for name in ("qkv", "up"):
            plan[block + name] = ColwiseParallel(input_layouts=stream)
        for name in ("proj", "down"):
            plan[block + name] = RowwiseParallel(output_layouts=stream)
        if options.sequence_parallel:
            plan.update({block + name: SequenceParallel() for name in ("norm_1", "norm_2")})
    return plan


def model_of(options, mesh):
    model = torch_rank.gpt(options)
    for block in model.blocks:
        for values in block.qkv.parameters():
            values.data = rows_by_rank(values.data, options.ranks)
    return parallelize_module(model, mesh, plan_of(options))


def parameter_groups(model):
    """Returns the groups of torch_rank.parameter_groups, each divided into DTensors and tensors, which the fused AdamW does not
    take together."""
    groups = []
    for group in torch_rank.parameter_groups(model):
        for kind in (True, False):
            own = [p for p in group["params"] if isinstance(p, DTensor) == kind]
            groups += [{**group, "params": own}] if own else []
    return groups


def clip(parameters, largest):
    """Clips the gradient at the norm `largest`. The squares of cut parameters are summed over the ranks."""
    whole, cut = [], []
    for p in parameters:
        is_cut = isinstance(p.grad, DTensor) and any(placement.is_shard() for placement in p.grad.placements)
        (cut if is_cut else whole).append(p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad)
    total = torch.nn.utils.get_total_norm(cut).square()
    dist.all_reduce(total)
    norm = (total + torch.nn.utils.get_total_norm(whole).square()).sqrt()
    torch._foreach_mul_(whole + cut, torch.clamp(largest / (norm + 1e-6), max=1.0))


def sum_partial_gradients(parameters):
    """Sums the gradients of which each rank has a part: those of norms under sequence parallelism."""
    for p in parameters:
        if isinstance(p.grad, DTensor) and any(placement.is_partial() for placement in p.grad.placements):
            p.grad = p.grad.redistribute(placements=p.placements)


def main():
    parser = torch_rank.rank_parser()
    parser.add_argument("--precision")
    parser.add_argument("--sequence-parallel", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.barrier()
    torch_rank.mark_idle(options)
    model = model_of(options, dist.init_device_mesh("cpu", (options.ranks,)))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=options.lr, betas=(0.9, 0.95), fused=True)

    def step(tokens, labels):
        optimizer.zero_grad(set_to_none=True)
        with loss_parallel():
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16"):
                loss = model(tokens, labels)
            loss.backward()
        sum_partial_gradients(parameters)
        clip(parameters, 1.0)
        optimizer.step()
        return loss.full_tensor() if dist.get_rank() == 0 else torch.zeros(())

    torch_rank.train(options, step, replicas=1)


if __name__ == "__main__":
    main()
