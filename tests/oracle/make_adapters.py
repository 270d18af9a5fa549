"""Writes tests/golden/adapters/: folders of small random models, of LoRA adapters with random matrices as peft saves them, and the
greedy answers of the models with the adapters merged. Needs transformers and peft (tested with 0.21.2; .venv-huggingface)."""

import json
import pathlib
import shutil

import peft
import safetensors.torch
import torch
import transformers

import golden

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden/adapters"
ENDS = dict(bos_token_id=0, eos_token_id=1)
COMMON = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64,
              max_position_embeddings=64, initializer_range=0.2, **ENDS)
MIXTRAL = COMMON | dict(intermediate_size=24, num_local_experts=4, num_experts_per_tok=2)
PROMPT, TOKENS = [5, 17, 30, 2, 61], 12
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


def bases():
    """Returns the models, by the names of their folders."""
    gpt2 = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=64, initializer_range=0.2, **ENDS)
    return {
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON, tie_word_embeddings=False)),
        "qwen2": transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**COMMON, tie_word_embeddings=True)),
        "gpt2": transformers.GPT2LMHeadModel(gpt2),
        "mixtral": transformers.MixtralForCausalLM(transformers.MixtralConfig(**MIXTRAL)),
    }


def adapters():
    """Returns {name of the adapter's folder: (base, config)}."""
    lora = peft.LoraConfig
    return {
        # "layers.1..." wins by the order of the file over "q_proj": peft sorts keys.
        "llama_patterns": ("llama", lora(
            r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"], use_rslora=True,
            rank_pattern={"q_proj": 2, r"layers\.1\.mlp\.(up|down)_proj": 5, r"model\.layers\.0\.mlp\.gate_proj": 3},
            alpha_pattern={"q_proj": 3, r".*\.1\.self_attn\.q_proj": 9, "layers.0.mlp.up_proj": 12, "proj": 100})),
        "llama_saved": ("llama", lora(r=2, lora_alpha=4, target_modules=r".*\.o_proj", modules_to_save=["lm_head", "norm"])),
        "llama_all": ("llama", lora(r=2, lora_alpha=4, target_modules="all-linear", lora_dropout=0.1,
                                    init_lora_weights="gaussian")),
        "qwen2_biased": ("qwen2", lora(r=4, target_modules=ATTENTION, layers_to_transform=[1])),
        "qwen2_tied": ("qwen2", lora(r=2, target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
        "gpt2_conv1d": ("gpt2", lora(r=4, lora_alpha=5, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
        "mixtral_attention": ("mixtral", lora(r=4, target_modules=ATTENTION)),
    }


def answer(model):
    return golden.greedy_answer(model, PROMPT, TOKENS)


def randomise(model):
    """Gives the matrices of the adapter, and what is trained beside them, random values."""
    for name, values in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(values, std=0.2)
        elif values.requires_grad:
            values.data += 0.1 * torch.randn_like(values)


def write_adapter(name, base, config):
    """Saves an adapter, and returns the answer of its base with it merged."""
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(FOLDER / base, dtype=torch.float32), config)
    randomise(model)
    model.save_pretrained(FOLDER / name)
    (FOLDER / name / "README.md").unlink()
    file = FOLDER / name / "adapter_config.json"
    file.write_text(file.read_text().replace(str(FOLDER / base), base))
    return merged(name, base)


def merged(name, base):
    """Returns the answer of a base with an adapter that was saved."""
    plain = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / base, dtype=torch.float32)
    unchanged = answer(plain)
    model = peft.PeftModel.from_pretrained(plain, FOLDER / name).merge_and_unload()
    result = answer(model) | {"base": base}
    assert max(abs(a - b) for a, b in zip(result["logprobs"], unchanged["logprobs"])) > 1e-2, name
    return result


def write_experts(name, base):
    """Writes an adapter of experts by the names of transformers 4, which peft converts when it loads one."""
    config = peft.LoraConfig(r=3, lora_alpha=4, target_modules=["q_proj", "w1", "w2", "w3"], base_model_name_or_path=base,
                             task_type="CAUSAL_LM", inference_mode=True)
    config.save_pretrained(FOLDER / name)
    hidden, ffn = MIXTRAL["hidden_size"], MIXTRAL["intermediate_size"]
    shapes = {f"layers.{layer}.self_attn.q_proj": (hidden, hidden) for layer in range(2)}
    for layer in range(2):
        for expert in range(MIXTRAL["num_local_experts"]):
            for matrix, shape in {"w1": (ffn, hidden), "w2": (hidden, ffn), "w3": (ffn, hidden)}.items():
                shapes[f"layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}"] = shape
    tensors = {}
    for module, (rows, columns) in shapes.items():
        tensors[f"base_model.model.model.{module}.lora_A.weight"] = 0.2 * torch.randn(3, columns)
        tensors[f"base_model.model.model.{module}.lora_B.weight"] = 0.2 * torch.randn(rows, 3)
    safetensors.torch.save_file(tensors, FOLDER / name / "adapter_model.safetensors", {"format": "pt"})
    return merged(name, base)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    torch.manual_seed(1)
    for name, model in bases().items():
        (model if name == "qwen2" else model.bfloat16()).save_pretrained(FOLDER / name)
    answers = {name: write_adapter(name, base, config) for name, (base, config) in adapters().items()}
    answers["mixtral_experts"] = write_experts("mixtral_experts", "mixtral")
    (FOLDER / "answers.json").write_text(json.dumps({"prompt": PROMPT, "answers": answers}, indent=1) + "\n")
    for file in FOLDER.glob("*/generation_config.json"):
        file.unlink()


if __name__ == "__main__":
    main()
