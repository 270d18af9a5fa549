"""Checks that Hugging Face's packages read what `ztoolkit ckpt export` writes. Usage: read_safetensors.py ZTOOLKIT

Imports the golden models and exports them again. safetensors must find the tensors of the original in the exported files, and
transformers must load the folder and compute the logits of the original."""

import pathlib
import subprocess
import sys
import tempfile

import safetensors
import torch
from transformers import AutoModelForCausalLM

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden/huggingface"


def ckpt(*words):
    done = subprocess.run([sys.argv[1], "ckpt", *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ztoolkit ckpt {words[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")


def tensors_of(folder):
    tensors = {}
    for path in folder.glob("model*.safetensors"):
        with safetensors.safe_open(path, framework="pt") as file:
            tensors.update({name: file.get_tensor(name) for name in file.keys()})
    return tensors


def unstacked(tensors):
    """Gives the experts of a layer that are one tensor the names that transformers writes by default."""
    names = {}
    for name, values in tensors.items():
        prefix, found, kind = name.rpartition(".experts.")
        if not found or kind not in ("gate_up_proj", "down_proj"):
            names[name] = values
            continue
        for expert, matrix in enumerate(values):
            parts = zip(("gate_proj", "up_proj"), matrix.chunk(2)) if kind == "gate_up_proj" else [("down_proj", matrix)]
            names.update({f"{prefix}.experts.{expert}.{part}.weight": part_values for part, part_values in parts})
    return names


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


for model in sorted(path for path in GOLDEN.iterdir() if path.is_dir()):
    with tempfile.TemporaryDirectory() as temporary:
        run, original = pathlib.Path(temporary), unstacked(tensors_of(model))
        ckpt("import", model, run)
        for out, options in (("whole", []), ("parts", ["--shard-bytes", "2000"]), ("bf16", ["--dtype", "bf16"])):
            ckpt("export", run, run / out, "--model", run / "model.json", *options)
            tensors = tensors_of(run / out)
            check(tensors.keys() == original.keys(), f"{model.name}: {out} has other tensors")
            for name, values in tensors.items():
                check(torch.equal(values, original[name].to(values.dtype)), f"{model.name}: {name} of {out} differs")
        with safetensors.safe_open(model / "expected.safetensors", framework="pt") as file:
            tokens, logits = file.get_tensor("tokens"), file.get_tensor("logits_fp32")
        # By default, transformers runs experts by an operator that needs rows of a multiple of 16 bytes.
        again = AutoModelForCausalLM.from_pretrained(run / "parts", experts_implementation="eager")(tokens).logits
        off = ((again - logits).abs().max() / logits.abs().max()).item()
        check(off <= 1e-5, f"{model.name}: transformers computes logits from what was exported that are {off:.1e} off")
        print(f"{model.name}: {len(original)} tensors, equal; logits within {off:.1e}")
