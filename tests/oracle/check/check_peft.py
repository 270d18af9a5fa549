"""Checks that adapters pass between ztoolkit and peft, in fp32: peft loads what ckpt.save_adapter writes and computes our logits, and
ckpt.load_adapter loads what peft has saved (tests/golden/adapters) and computes those of peft. Run by hand:

  .venv-huggingface/bin/python tests/oracle/check/check_peft.py build/release/bin/ztoolkit

Needs transformers and peft (tested with peft 0.21.2). Prints the largest difference of each case; fails above 1e-5."""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import peft
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests/golden/adapters"
BOUND = 1e-5

# Rows {base, option lora of nn.gpt in Lua, parameters that are trained, too}.
SAVED = [
    ("llama", '{rank = 2, targets = {"q", "v"}}', ""),
    ("llama", '{rank = 3, alpha = 5, scale = "alpha/sqrt(r)", targets = {"qkv", "out", "up", "down"}, layers = {1}}', ""),
    ("llama", '{rank = 4, targets = {"q", "k", "v", "out", "gate", "up_proj", "down", "head"}, ranks = {q = 2, ["blocks.1.down"] = 3},'
              ' alphas = {["blocks.0.gate"] = 7, head = 3}}', ""),
    ("llama", '{rank = 2, targets = {"out", "gate"}}', "^(head|embedding|blocks.1.norm1)"),
    ("qwen2", '{rank = 4, targets = {"q", "up_proj", "down"}, layers = {0}}', ""),
    ("qwen2", '{rank = 2, targets = {"qkv", "up"}, scale = "alpha/sqrt(r)"}', "norm"),
    ("qwen2", '{rank = 2, targets = {"v", "head"}, layers = {1}}', ""),
    ("gpt2", '{rank = 2, targets = {"qkv", "out", "up", "down"}}', ""),
    ("gpt2", '{rank = 2, alpha = 6, targets = {"q", "v"}, scale = "alpha/sqrt(r)"}', ""),
    ("gpt2", '{rank = 2, targets = {"q", "k", "v", "down"}, alphas = {v = 3}, ranks = {["blocks.1.k"] = 4}}', "^head.norm"),
    ("gpt2", '{rank = 2, targets = {"out", "head"}}', "^embedding.positions"),
    ("mixtral", '{rank = 2, targets = {"q", "out"}}', "^head.weight"),
]
LOADED = {"llama_patterns": "llama", "llama_saved": "llama", "llama_all": "llama", "qwen2_biased": "qwen2", "qwen2_tied": "qwen2",
          "gpt2_conv1d": "gpt2", "mixtral_attention": "mixtral"}

# The head of the scripts: a trainer of a base with adapters; `finish` writes its logits.
SCRIPT = """
local zt = require "zt"
local ckpt, moe, optim = require "zt.ckpt", require "zt.moe", require "zt.optim"
local base = ckpt.pretrained "{base}"
base.options.lora = {lora}
local model = moe.gpt(base.options)
if "{trained}" ~= "" then model:unfreeze "{trained}" end
local trainer = zt.trainer(zt.program(model, {{precision = "fp32"}}), {{optimizer = optim.adamw{{lr = 0.01}}}})
base:load(trainer)
local function finish()
  local tokens = (zt.arange(24) * 7 + 3):remainder(64):to "int64":reshape{{2, 12}}
  local logits = trainer:infer{{tokens = tokens}}.logits
  ckpt.write_safetensors("{out}/logits.safetensors", {{{{name = "logits", shape = logits:size(), dtype = "float32"}}}}, 1e9,
    function() return logits end)
end
{rest}
finish()
"""
SAVE = """
for number, name in ipairs(trainer:parameters()) do
  local values = trainer:parameter(name)
  zt.manual_seed(number)
  if name:find "lora%..*%.b$" then
    trainer:set_parameter(name, 0.1 * zt.randn(values:size()))
  elseif "{trained}" ~= "" and not name:find "lora" and model:parameters()[number].trainable then
    trainer:set_parameter(name, values + 0.1 * zt.randn(values:size()))
  end
end
ckpt.save_adapter(trainer, "{out}/adapter", {{base_model = "{base}"}})
"""


def run(program, out, base, lora, rest, trained=""):
    """Runs a script of ours, and returns its logits."""
    fields = dict(base=base, lora=lora, out=out, trained=trained)
    script = pathlib.Path(out) / "script.lua"
    script.write_text(SCRIPT.format(rest=rest.format(**fields), **fields))
    subprocess.run([program, "run", script], check=True, cwd=ROOT)
    return safetensors.torch.load_file(f"{out}/logits.safetensors")["logits"]


def by_peft(base, adapter):
    """Returns the logits of peft, and the numbers of modules that it has given an adapter and that are in the file."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(model, adapter).eval()
    layers = sum(isinstance(module, peft.tuners.lora.LoraLayer) for module in model.modules())
    tensors = safetensors.torch.load_file(pathlib.Path(adapter) / "adapter_model.safetensors")
    tokens = (torch.arange(24) * 7 + 3).remainder(64).reshape(2, 12)
    with torch.no_grad():
        return model(tokens).logits, layers, sum("lora_A" in name for name in tensors)


def check(what, base, adapter, ours):
    """Prints the difference of a case. Returns whether it is small, with as many adapters as in the file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        theirs, layers, there = by_peft(base, adapter)
    for warning in caught:
        if "missing adapter keys" in str(warning.message) or "unexpected" in str(warning.message).lower():
            print("   ", str(warning.message)[:300])
            return False
    plain = by_base(base)
    off, effect = (ours - theirs).abs().max().item(), (theirs - plain).abs().max().item()
    print(f"{off:.2e} of {effect:.2f}, {layers} modules: {what}", flush=True)
    return off <= BOUND and effect > 0.01 and layers == there


def by_base(base):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    with torch.no_grad():
        return model((torch.arange(24) * 7 + 3).remainder(64).reshape(2, 12)).logits


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    program = pathlib.Path(sys.argv[1]).resolve()
    wrong = 0
    for base, lora, trained in SAVED:
        with tempfile.TemporaryDirectory() as out:
            ours = run(program, out, FOLDER / base, lora, SAVE, trained)
            wrong += not check(f"saved here: {base} {lora} {trained}", FOLDER / base, f"{out}/adapter", ours)
            config = json.loads((pathlib.Path(out) / "adapter/adapter_config.json").read_text())
            wrong += set(config) != set(peft.LoraConfig().to_dict())  # the keys of this version
    for name, base in LOADED.items():
        with tempfile.TemporaryDirectory() as out:
            rest = f'ckpt.load_adapter(trainer, "{FOLDER / name}")'
            lora = f'ckpt.lora_options("{FOLDER / name}", base.options)'
            ours = run(program, out, FOLDER / base, lora, rest)
            wrong += not check(f"saved by peft: {name}", FOLDER / base, FOLDER / name, ours)
    print(f"{wrong} of {2 * len(SAVED) + len(LOADED)} checks failed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
