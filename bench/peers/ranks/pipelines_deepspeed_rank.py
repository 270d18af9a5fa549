"""Runs a rank of DeepSpeed's pipeline, over gloo. pipelines.py starts it with the Python of .venv-deepspeed."""

import itertools
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("deepspeed", "numpy", "torch", environment=".venv-deepspeed", starter="pipelines.py")

import torch
from deepspeed.pipe import PipelineModule

import torch_rank
import train_vs_deepspeed_rank


class Pipeline(PipelineModule):
    """A pipeline whose `partition_method` is a cut: the number of layers of each stage, as text such as "5,3"."""

    def _partition_layers(self, method):
        self.parts = [0, *itertools.accumulate(map(int, method.split(",")))]
        first, end = self.parts[self.stage_id], self.parts[self.stage_id + 1]
        self._set_bounds(first, end)
        # The layers of the other ranks are dropped, so that they take no memory.
        self._layer_specs = [layer if first <= place < end else None for place, layer in enumerate(self._layer_specs)]


def main():
    parser = train_vs_deepspeed_rank.rank_parser()
    parser.add_argument("--micro-batches", type=int)
    parser.add_argument("--cut", type=int, nargs="+", help="the number of layers of each stage")
    options = parser.parse_args()
    sizes = {"train_micro_batch_size_per_gpu": options.batch // options.micro_batches,
             "gradient_accumulation_steps": options.micro_batches}
    options.config = {**sizes, **options.config}
    train_vs_deepspeed_rank.begin(options)
    pipeline = Pipeline(torch_rank.gpt(options).layers(), num_stages=options.ranks, loss_fn=torch_rank.cross_entropy,
                        partition_method=",".join(map(str, options.cut)))
    engine = train_vs_deepspeed_rank.engine_of(pipeline, torch_rank.parameter_groups(pipeline), options)

    def step(tokens, labels):
        loss = engine.train_batch(zip(tokens.chunk(options.micro_batches), labels.chunk(options.micro_batches)))
        return loss if engine.is_last_stage() else torch.zeros(())

    torch_rank.train(options, step, replicas=1)


if __name__ == "__main__":
    main()
