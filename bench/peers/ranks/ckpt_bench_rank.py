"""Runs a rank of the DeepSpeed side of ckpt_bench.py: saves and loads the same GPT. Rank 0 prints the seconds as a line of
JSON."""

import argparse
import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py, torch_rank.py, train_vs.py

import needs

needs.packages("deepspeed", "numpy", "torch", environment=".venv-deepspeed", starter="ckpt_bench.py")

import deepspeed
import torch

import torch_rank


# The conversion to the universal form requires this entry in the client state.
UNIVERSAL = {"universal_checkpoint_info": {"universal_checkpoint_version": 0.2}}


def timed(action):
    torch.distributed.barrier()
    began = time.monotonic()
    action()
    torch.distributed.barrier()
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    for name in ("layers", "hidden", "heads", "vocab", "seq", "stage", "saves"):
        parser.add_argument(f"--{name}", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed()
    model = torch_rank.Gpt(options.layers, options.hidden, options.heads, options.vocab, options.seq, tied=False)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": options.stage},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": False}}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    tokens = torch.arange(options.seq).view(1, -1)
    loss = engine(tokens, tokens)
    engine.backward(loss)
    engine.step()
    result = {"save": [], "sync": []}
    for number in range(options.saves):
        result["save"].append(timed(lambda: engine.save_checkpoint(options.folder, tag="last", client_state=UNIVERSAL)))
        result["sync"].append(timed(lambda: os.sync() if torch.distributed.get_rank() == 0 else None))
    result["load"] = timed(lambda: engine.load_checkpoint(options.folder, tag="last"))
    if torch.distributed.get_rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
