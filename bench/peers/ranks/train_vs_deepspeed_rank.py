"""Runs a rank of the DeepSpeed side. train_vs_deepspeed.py starts it with the Python of .venv-deepspeed."""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("deepspeed", "numpy", "torch", environment=".venv-deepspeed", starter="train_vs_deepspeed.py")

import deepspeed
import torch

import torch_rank


def config(options):
    """Returns DeepSpeed's configuration (bench/README.md gives the reasons). The keys of --config override it."""
    fixed = {
        "train_micro_batch_size_per_gpu": options.batch // options.ranks,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": options.lr, "betas": [0.9, 0.95], "eps": 1e-8, "torch_adam": False}},
        "zero_optimization": {"stage": options.stage},
        "bf16": {"enabled": options.precision == "bf16"},
    }
    for key, value in options.config.items():
        fixed[key] = {**fixed[key], **value} if isinstance(value, dict) and key in fixed else value
    return fixed


def step_of(engine):
    """Returns the function `step` for torch_rank.train."""

    def step(tokens, labels):
        loss = engine(tokens, labels)
        engine.backward(loss)
        engine.step()
        return loss

    return step


def rank_parser():
    """Returns the parser of the arguments that all ranks of DeepSpeed take."""
    parser = torch_rank.rank_parser()
    parser.add_argument("--stage", type=int)
    parser.add_argument("--precision")
    parser.add_argument("--config", type=json.loads)
    return parser


def begin(options):
    """Joins the other ranks, and notes the memory before a model is made."""
    torch.set_num_threads(1)
    deepspeed.init_distributed()
    torch.distributed.barrier()
    torch_rank.mark_idle(options)


def engine_of(model, groups, options):
    engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config(options))
    return engine


def main():
    options = rank_parser().parse_args()
    begin(options)
    model = torch_rank.gpt(options)
    torch_rank.train(options, step_of(engine_of(model, torch_rank.parameter_groups(model), options)))


if __name__ == "__main__":
    main()
