"""Runs a rank of PyTorch's pipeline, over gloo. pipelines.py starts it."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("numpy", "torch", starter="pipelines.py")

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

import torch_rank


class Stage(torch.nn.Sequential):
    """Layers of the model. In bf16 their forward runs under autocast, with weights and residuals in fp32."""

    def __init__(self, layers, precision):
        super().__init__(*layers)
        self.autocast = precision == "bf16"

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return super().forward(x)


def own_stages(options, rank):
    """Returns the stages of this rank: those whose number modulo the ranks is its own."""
    layers, stages, first = torch_rank.gpt(options).layers(), [], 0
    for number, count in enumerate(options.cut):
        if number % options.ranks == rank:
            module = Stage(layers[first : first + count], options.precision)
            stages.append(PipelineStage(module, number, len(options.cut), torch.device("cpu")))
        first += count
    return stages


def schedule_of(options, stages):
    """Returns the schedule. Gradients are those of the mean over all micro-batches: the loss of each is divided by their number,
    which takes no pass over the gradients."""
    kind = get_schedule_class(options.schedule)
    stages = stages[0] if issubclass(kind, PipelineScheduleSingle) else stages
    return kind(stages, options.micro_batches, scale_grads=False,
                loss_fn=lambda logits, labels: torch_rank.cross_entropy(logits, labels) / options.micro_batches)


def clip(parameters, largest):
    """Clips the gradient of the whole model, which is spread over the ranks, at the norm `largest`."""
    total = torch.nn.utils.get_total_norm([p.grad for p in parameters]).square()
    dist.all_reduce(total)
    torch.nn.utils.clip_grads_with_norm_(parameters, largest, total.sqrt())


def main():
    parser = torch_rank.rank_parser()
    parser.add_argument("--schedule")
    parser.add_argument("--precision")
    parser.add_argument("--micro-batches", type=int)
    parser.add_argument("--cut", type=int, nargs="+", help="the number of layers of each stage")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist.barrier()
    torch_rank.mark_idle(options)
    stages = own_stages(options, dist.get_rank())
    schedule = schedule_of(options, stages)
    modules = torch.nn.ModuleList(stage.submod for stage in stages)
    parameters = list(modules.parameters())
    optimizer = torch.optim.AdamW(torch_rank.parameter_groups(modules), lr=options.lr, betas=(0.9, 0.95), fused=True)

    def step(tokens, labels):
        optimizer.zero_grad(set_to_none=True)
        inputs = [tokens.contiguous()] if stages[0].is_first else []
        target, losses = (labels, []) if stages[-1].is_last else (None, None)
        schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        clip(parameters, 1.0)
        optimizer.step()
        return torch.stack(losses).sum() if losses else torch.zeros(())

    torch_rank.train(options, step, replicas=1)


if __name__ == "__main__":
    main()
