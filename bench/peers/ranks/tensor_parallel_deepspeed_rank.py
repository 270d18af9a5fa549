"""Runs a rank of DeepSpeed's automatic tensor parallelism (AutoTP), over gloo. tensor_parallel.py starts it with the Python of
.venv-deepspeed."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("deepspeed", "numpy", "torch", environment=".venv-deepspeed", starter="tensor_parallel.py")

import torch

import torch_rank
import train_vs_deepspeed_rank


def tensor_parallel(options):
    """Returns the keys of DeepSpeed's configuration by which all ranks share the matrices and have all samples. AutoTP does not
    know torch_rank.Gpt, so the layers are named. The head's logits are gathered: AutoTP's loss over a cut vocabulary is for models
    of Hugging Face."""
    specs = [
        {"patterns": [r".*\.qkv\.weight$"], "partition_type": "column", "shape": [3, -1], "partition_dim": 0},
        {"patterns": [r".*\.up\.weight$"], "partition_type": "column"},
        {"patterns": [r".*\.(proj|down)\.weight$"], "partition_type": "row"},
        {"patterns": [r"head\.linear\.weight$"], "partition_type": "column", "gather_output": True},
        {"patterns": [r".*"], "partition_type": "skip"},
    ]
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "tensor_parallel": {"autotp_size": options.ranks, "partition_config": {"use_default_specs": False, "layer_specs": specs}},
    }


def main():
    options = train_vs_deepspeed_rank.rank_parser().parse_args()
    options.config = {**tensor_parallel(options), **options.config}
    train_vs_deepspeed_rank.begin(options)
    model = torch_rank.gpt(options)
    engine = train_vs_deepspeed_rank.engine_of(model, torch_rank.parameter_groups(model), options)
    train = train_vs_deepspeed_rank.step_of(engine)

    def step(tokens, labels):
        loss = train(tokens, labels)
        return loss if torch.distributed.get_rank() == 0 else torch.zeros(())

    torch_rank.train(options, step, replicas=1)


if __name__ == "__main__":
    main()
