"""Checks that value models pass between ztoolkit and Hugging Face's packages, in fp32. Usage: check_values.py ZTOOLKIT

Of golden models: transformers loads what `ztoolkit ckpt export` writes as a classifier with one label, and computes our
value at the last token of each prefix; a classifier that transformers has saved is imported, computes its values, and is exported
again with equal tensors; and a value model as TRL saves it (v_head beside the language model) is imported with --head value. If
peft is there, adapters with the task type SEQ_CLS pass in both directions. Fails above 1e-5."""

import json
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

try:
    import peft
except ImportError:
    peft = None

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/huggingface"
BOUND = 1e-5
EAGER = {"experts_implementation": "eager"}  # the default operator needs rows of a multiple of 16 bytes
FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"]
OF_TRL = ["gpt2", "llama_tied", "qwen3"]
ADAPTED = {"llama": 'targets = {"q", "v"}', "gpt2": 'targets = {"qkv", "out"}', "qwen3": 'targets = {"qkv", "up", "down"}'}

# A trainer of a value model; `finish` writes its values at `tokens`.
SCRIPT = """
local zt = require "zt"
local ckpt, moe, optim = require "zt.ckpt", require "zt.moe", require "zt.optim"
local base = ckpt.pretrained "{base}"
local is_new = base.options.head ~= "value"
base.options.head = "value"
base.options.lora = {lora}
local model = moe.gpt(base.options)
local trainer = zt.trainer(zt.program(model, {{precision = "fp32"}}), {{optimizer = optim.adamw{{lr = 0.01}}}})
base:load(trainer, {{head = is_new and "new" or "same"}})
zt.manual_seed(1)
local function set(name) trainer:set_parameter(name, zt.randn(trainer:describe_parameter(name).shape)) end
if is_new then set "head.value.weight" end
{rest}
local tokens = ckpt.safetensors("{out}/tokens.safetensors"):read "tokens"
local values = trainer:infer{{tokens = tokens}}.values
ckpt.write_safetensors("{out}/values.safetensors", {{{{name = "values", shape = values:size(), dtype = "float32"}}}}, 1e9,
  function() return values end, nil, true)
"""
SAVE = 'ckpt.save("{out}/run", {{trainer = trainer}}, {{step = 1, async = false}})'
SAVE_ADAPTER = """
for _, name in ipairs(trainer:parameters()) do
  if name:find "lora%..*%.b$" then set(name) end
end
ckpt.save_adapter(trainer, "{out}/adapter")
"""


def command(*words):
    done = subprocess.run([pathlib.Path(sys.argv[1]).resolve(), *map(str, words)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"ztoolkit {words[0]} {words[1]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def ours(base, out, tokens, rest="", lora="nil"):
    """Returns our values [samples, seq]. rest: what the script does before it computes them."""
    fields = dict(base=base, out=out, lora=lora)
    safetensors.torch.save_file({"tokens": tokens}, f"{out}/tokens.safetensors")
    (out / "script.lua").write_text(SCRIPT.format(rest=rest.format(**fields), **fields))
    command("run", out / "script.lua")
    return safetensors.torch.load_file(f"{out}/values.safetensors")["values"]


def classifier(folder, **options):
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32,
                                                                                  output_loading_info=True, **EAGER, **options)
    return model.eval(), info


def at_last_tokens(model, tokens):
    """Returns the score of each prefix of each sample, which transformers computes for the last token."""
    with torch.no_grad():
        return torch.tensor([[model(sample[None, :last + 1]).logits.item() for last in range(len(sample))] for sample in tokens])


def compare(what, values, wanted):
    off = ((values - wanted).abs().max() / wanted.abs().max()).item()
    check(off <= BOUND, f"{what}: values are {off:.1e} off")
    print(f"{what}: values within {off:.1e}", flush=True)


def tensors_of(folder):
    tensors = {}
    for path in folder.glob("model*.safetensors"):
        tensors.update(safetensors.torch.load_file(path))
    return tensors


def check_exported(name, tokens, out):
    """transformers loads what we write."""
    values = ours(GOLDEN / name, out, tokens, SAVE)
    command("ckpt", "export", out / "run", out / "hf", "--huggingface")
    model, info = classifier(out / "hf")
    check(not any(info.values()), f"{name}: transformers says of what was exported: {info}")
    check((model.config.num_labels, model.score.weight.shape[0]) == (1, 1), f"{name}: not one label")
    check(type(model).__name__ == model.config.architectures[0], f"{name}: {model.config.architectures}")
    compare(f"{name} by transformers", values, at_last_tokens(model, tokens))


def check_imported(name, tokens, out):
    """We load what transformers writes, and write it again."""
    torch.manual_seed(2)
    model, _ = classifier(GOLDEN / name, num_labels=1)
    torch.nn.init.normal_(model.score.weight)
    model.save_pretrained(out / "saved")
    command("ckpt", "import", out / "saved", out / "imported")
    compare(f"{name} from transformers", ours(out / "imported", out, tokens), at_last_tokens(model, tokens))
    command("ckpt", "export", out / "imported", out / "again", "--huggingface")
    saved, again = tensors_of(out / "saved"), tensors_of(out / "again")
    check(saved.keys() == again.keys(), f"{name}: other tensors than transformers': {saved.keys() ^ again.keys()}")
    check(all(torch.equal(again[key], values) for key, values in saved.items()), f"{name}: the tensors of transformers differ")


def check_padding(name, tokens, out):
    """A text may end with the token of the padding, at which transformers would take no score."""
    model, _ = classifier(GOLDEN / name, num_labels=1)
    torch.nn.init.normal_(model.score.weight)
    model.config.eos_token_id = model.config.pad_token_id = tokens[0, -1].item()
    model.save_pretrained(out / "saved")
    command("ckpt", "import", out / "saved", out / "imported")
    said = command("ckpt", "export", out / "imported", out / "again", "--huggingface")
    check("pad_token_id is null" in said, f"{name}: export does not say that it leaves pad_token_id out: {said}")
    again, _ = classifier(out / "again")
    compare(f"{name} without padding", ours(out / "imported", out, tokens), at_last_tokens(again, tokens))


def check_trl(name, tokens, out):
    """A value model of TRL's is a row of weights on the last hidden state of the language model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32, **EAGER).eval()
    weight = torch.randn(1, model.config.hidden_size)
    model.save_pretrained(out / "trl")
    tensors = tensors_of(out / "trl") | {"v_head.summary.weight": weight, "v_head.summary.bias": torch.zeros(1)}
    safetensors.torch.save_file(tensors, out / "trl/model.safetensors", metadata={"format": "pt"})
    command("ckpt", "import", out / "trl", out / "values", "--head", "value")
    with torch.no_grad():
        wanted = (model.model if hasattr(model, "model") else model.transformer)(tokens).last_hidden_state @ weight[0]
    compare(f"{name} of TRL", ours(out / "values", out, tokens), wanted)


def check_adapter(name, tokens, out):
    """peft loads our adapter of a value model on the language model, and we load the one that peft saves again."""
    values = ours(GOLDEN / name, out, tokens, SAVE_ADAPTER, "{rank = 2, %s}" % ADAPTED[name])
    config = json.loads((out / "adapter/adapter_config.json").read_text())
    check((config["task_type"], config["modules_to_save"]) == ("SEQ_CLS", ["score"]), f"{name}: adapter_config.json is {config}")
    base, _ = classifier(GOLDEN / name, num_labels=1)
    model = peft.PeftModel.from_pretrained(base, out / "adapter").eval()
    compare(f"{name} with our adapter by peft", values, at_last_tokens(model, tokens))
    model.save_pretrained(out / "by_peft")
    lora = f'ckpt.lora_options("{out}/by_peft", base.options)'
    load = 'ckpt.load_adapter(trainer, "{out}/by_peft")'
    compare(f"{name} with peft's adapter", ours(GOLDEN / name, out, tokens, load, lora), values)
    command("ckpt", "import", out / "by_peft", out / "adapted", "--adapter", "--base", GOLDEN / name, "--head", "value")
    command("ckpt", "export", out / "adapted", out / "merged", "--merge", "--huggingface")
    merged, _ = classifier(out / "merged")
    compare(f"{name} with peft's adapter, merged", at_last_tokens(merged, tokens), values)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    cases = {check_exported: FAMILIES, check_imported: FAMILIES, check_padding: ["llama"], check_trl: OF_TRL,
             check_adapter: ADAPTED if peft else []}
    for test, names in cases.items():
        for name in names:
            tokens = safetensors.torch.load_file(GOLDEN / name / "expected.safetensors")["tokens"]
            with tempfile.TemporaryDirectory() as out:
                test(name, tokens, pathlib.Path(out))


main()
