"""Quantises by bitsandbytes to nf4.

Writes tests/golden/packed.safetensors: small matrices, with and without compressed statistics, as bitsandbytes stores and
dequantises them. They are bf16 and have few groups, so that the mean of their scales is exact in any order of summation.

Writes tests/golden/bitsandbytes/: folders of small random models, as transformers quantises them and as older files have experts,
and their greedy answers. Needs transformers, bitsandbytes (tested with 0.50) and accelerate (.venv-huggingface)."""

import json
import pathlib
import shutil

import safetensors.torch
import torch
import transformers
from bitsandbytes import functional

import golden

SHAPES = {"one": (1, 64), "row": (3, 192), "panels": (37, 256), "blocks": (30, 640)}  # "blocks" has 300 groups: two blocks
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden/bitsandbytes"
ENDS = dict(bos_token_id=0, eos_token_id=1)
COMMON = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=96,
              max_position_embeddings=64, initializer_range=0.2, **ENDS)
PROMPT, TOKENS = [5, 17, 30, 2, 71], 12


def quantise(weight, is_nested):
    """Returns codes and state of a matrix."""
    return functional.quantize_4bit(weight, blocksize=64, compress_statistics=is_nested, quant_type="nf4")


def write_matrices():
    generator = torch.Generator().manual_seed(1)
    tensors = {"nf4_map": functional.create_dynamic_map()}
    for name, shape in SHAPES.items():
        weight = (torch.randn(shape, generator=generator) * 0.05).to(torch.bfloat16)
        if name == "panels":
            weight[5] = 0
        codes, state = quantise(weight, True)
        tensors |= {
            f"{name}.weight": weight,
            f"{name}.codes": codes.reshape(-1),
            f"{name}.absmax": state.absmax,
            f"{name}.quant_map": functional.get_4bit_type("nf4", device="cpu"),
            f"{name}.nested_absmax": state.state2.absmax,
            f"{name}.nested_quant_map": state.state2.code,
            f"{name}.nested_offset": state.offset.reshape(1),
        }
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            state.dtype = dtype
            tensors[f"{name}.{str(dtype).removeprefix('torch.')}"] = functional.dequantize_4bit(codes, state).reshape(shape)
        codes, state = quantise(weight, False)
        tensors |= {f"{name}.flat_codes": codes.reshape(-1), f"{name}.flat_absmax": state.absmax}
        state.dtype = torch.float32
        tensors[f"{name}.flat_float32"] = functional.dequantize_4bit(codes, state).reshape(shape)
    golden.save("packed", tensors)


def quantised(model, is_nested, skipped=None):
    """Returns the model as transformers quantises it."""
    options = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=is_nested,
                                              bnb_4bit_compute_dtype=torch.float32, llm_int8_skip_modules=skipped)
    plain = FOLDER / "plain"
    model.save_pretrained(plain)
    made = transformers.AutoModelForCausalLM.from_pretrained(plain, quantization_config=options, dtype=torch.float32)
    shutil.rmtree(plain)
    return made


def answer(model):
    return golden.greedy_answer(model, PROMPT, TOKENS)


def quantise_experts(folder):
    """Quantises the experts of a Mixtral in the files, with a name for each expert's matrix."""
    result = {}
    for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items():
        if ".experts." not in name:
            result[name] = tensor
            continue
        codes, state = quantise(tensor, True)
        result[name] = codes
        result |= {f"{name}.{key}": value.reshape(-1) for key, value in state.as_dict(packed=True).items()}
    config = json.loads((folder / "config.json").read_text())
    config["transformers_version"] = "4.57.1"  # that of files with such names
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    safetensors.torch.save_file(result, folder / "model.safetensors", {"format": "pt"})


def dequantise(codes, state):
    """Returns the matrix. On the CPU, bitsandbytes 0.50 errs where blocks go over the ends of rows: there, the numbers are those of
    the format's definition, by which it has quantised."""
    if state.shape[-1] % state.blocksize == 0:
        return functional.dequantize_4bit(codes, state)
    scales = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    pairs = codes.reshape(-1).long()
    numbers = state.code[torch.stack([pairs >> 4, pairs & 15], 1).reshape(-1, state.blocksize)]
    return (numbers * scales.reshape(-1, 1)).reshape(state.shape).to(state.dtype)


def dequantised(folder, model):
    """Returns the model of the numbers that the files stand for: the kernels that multiply by codes may round otherwise."""
    tensors, plain = safetensors.torch.load_file(folder / "model.safetensors"), FOLDER / "plain"
    model.save_pretrained(plain)
    file = plain / "model.safetensors"
    values = safetensors.torch.load_file(file)
    for name in values:
        of_state = {key.removeprefix(name + "."): value for key, value in tensors.items() if key.startswith(name + ".")}
        if not of_state:
            values[name] = tensors[name]
            continue
        state = functional.QuantState.from_dict(of_state, device="cpu")
        matrix = dequantise(tensors[name], state)
        is_transposed = isinstance(model, transformers.GPT2LMHeadModel)
        values[name] = matrix.T.contiguous() if is_transposed else matrix
    safetensors.torch.save_file(values, file, {"format": "pt"})
    made = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    shutil.rmtree(plain)
    return made


def write_models():
    shutil.rmtree(FOLDER, ignore_errors=True)
    torch.manual_seed(1)
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON, tie_word_embeddings=False))
    wide = COMMON | dict(hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    qwen2 = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**wide, tie_word_embeddings=True))
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=96, n_positions=64,
                                                                initializer_range=0.2, **ENDS))
    mixtral = transformers.MixtralForCausalLM(transformers.MixtralConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2))
    # Blocks go over the ends of rows, and the head is quantised, because the list does not name it.
    odd = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON | dict(hidden_size=96, num_hidden_layers=1),
                                                                 tie_word_embeddings=False))
    quantised(odd, True, ["q_proj"]).save_pretrained(FOLDER / "odd")
    quantised(llama, True).save_pretrained(FOLDER / "llama")
    quantised(qwen2, True).save_pretrained(FOLDER / "qwen2")
    quantised(gpt2, False).save_pretrained(FOLDER / "gpt2")
    mixtral.save_pretrained(FOLDER / "mixtral")
    quantise_experts(FOLDER / "mixtral")
    models = {"odd": odd, "llama": llama, "qwen2": qwen2, "gpt2": gpt2, "mixtral": mixtral}
    answers = {name: answer(dequantised(FOLDER / name, model)) for name, model in models.items()}
    (FOLDER / "answers.json").write_text(json.dumps({"prompt": PROMPT, "answers": answers}, indent=1) + "\n")
    for file in FOLDER.glob("*/generation_config.json"):
        file.unlink()


if __name__ == "__main__":
    write_matrices()
    write_models()
