"""Makes small random models, as Hugging Face's transformers saves them, and the logits that transformers computes.

Writes to tests/golden/huggingface/NAME/: config.json, the safetensors file (or files and their index) and expected.safetensors
with tokens, logits_fp32 and logits_fp64. Needs transformers, in a virtual environment of its own (scripts/setup.sh --oracle
makes it)."""

import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import golden

VOCAB, SAMPLES, SEQ = 61, 2, 9
NO_MARKS = {"bos_token_id": None, "eos_token_id": None}  # GPT-2's ids are outside of this vocabulary
STACKED = {"save_original_format": False}  # the experts of a layer as one tensor, as transformers 5 holds them
# The wavelengths of Llama's pairs of elements, 6, 20, 63 and 199, are below, between and above the bounds 64 / 4 and 64 / 1.
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
# name: (class, configuration, options of save_pretrained). New models come last: all draw from one generator.
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=VOCAB, n_positions=12, n_embd=16, n_layer=2, n_head=2, **NO_MARKS), {}),
    "gpt2_untied": (
        GPT2LMHeadModel,
        GPT2Config(vocab_size=VOCAB, n_positions=9, n_embd=12, n_layer=1, n_head=3, n_inner=20, activation_function="gelu",
                   layer_norm_epsilon=1e-3, tie_word_embeddings=False, **NO_MARKS),
        {"max_shard_size": "4KB"},
    ),
    "llama": (
        LlamaForCausalLM,
        LlamaConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=22, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=6, max_position_embeddings=32, rms_norm_eps=1e-6,
                    rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
        {},
    ),
    "llama_tied": (
        LlamaForCausalLM,
        LlamaConfig(vocab_size=VOCAB, hidden_size=12, intermediate_size=14, num_hidden_layers=1, num_attention_heads=3,
                    num_key_value_heads=1, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        {},
    ),
    "mixtral": (
        MixtralForCausalLM,
        MixtralConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=10, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, max_position_embeddings=32, num_local_experts=4, num_experts_per_tok=2),
        {},
    ),
    "qwen3_moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(vocab_size=VOCAB, hidden_size=12, intermediate_size=14, num_hidden_layers=3, num_attention_heads=3,
                       num_key_value_heads=1, head_dim=6, max_position_embeddings=32, num_experts=6, num_experts_per_tok=3,
                       moe_intermediate_size=7, mlp_only_layers=[1]),
        {},
    ),
    "qwen3_moe_stacked": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(vocab_size=VOCAB, hidden_size=12, intermediate_size=14, num_hidden_layers=2, num_attention_heads=2,
                       num_key_value_heads=2, max_position_embeddings=32, num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=5, decoder_sparse_step=2, norm_topk_prob=True, tie_word_embeddings=True),
        STACKED,
    ),
    "llama3": (
        LlamaForCausalLM,
        LlamaConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=18, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=8, max_position_embeddings=512, rms_norm_eps=1e-5,
                    rope_parameters=LLAMA3_ROPE),
        {},
    ),
    "mistral": (
        MistralForCausalLM,
        MistralConfig(vocab_size=VOCAB, hidden_size=16, intermediate_size=14, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, max_position_embeddings=32, sliding_window=4,
                      rope_parameters={"rope_type": "linear", "rope_theta": 200.0, "factor": 4.0}),
        {},
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(vocab_size=VOCAB, hidden_size=12, intermediate_size=14, num_hidden_layers=3, num_attention_heads=3,
                    num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True, use_sliding_window=True,
                    sliding_window=3, max_window_layers=2),
        {},
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config(vocab_size=VOCAB, hidden_size=12, intermediate_size=14, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=6, max_position_embeddings=32, use_sliding_window=True, sliding_window=5,
                    layer_types=["sliding_attention", "full_attention"]),
        {},
    ),
    "mixtral_window": (
        MixtralForCausalLM,
        MixtralConfig(vocab_size=VOCAB, hidden_size=12, intermediate_size=10, num_hidden_layers=1, num_attention_heads=2,
                      num_key_value_heads=1, max_position_embeddings=32, num_local_experts=3, num_experts_per_tok=2,
                      sliding_window=4),
        {},
    ),
}


class Wide(torch.overrides.TorchFunctionMode):
    """Replaces float32 by float64 in transformers' code: for every model it computes norms, rotary angles and softmax in float32."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(widen, args), **{key: widen(value) for key, value in (kwargs or {}).items()})


def fill(model, generator):
    """Fills parameters so that every tensor changes the logits. The initial values of transformers are nearly 0 or 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = torch.randn(parameter.shape, generator=generator)
            is_scale = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(1 + 0.2 * numbers if is_scale else 0.3 * numbers)


def logits(model, tokens):
    with torch.no_grad():
        return model.eval()(tokens).logits


def make(name, kind, config, options, generator):
    folder = golden.FOLDER / "huggingface" / name
    shutil.rmtree(folder, ignore_errors=True)
    config._attn_implementation = config._experts_implementation = "eager"
    model = kind(config)
    fill(model, generator)
    model.save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink()
    tokens = torch.randint(VOCAB, (SAMPLES, SEQ), generator=generator)
    with Wide():
        wide = kind(config).double()
        wide.load_state_dict(model.state_dict())
        exact = logits(wide, tokens)
    assert exact.dtype == torch.float64
    golden.save(f"huggingface/{name}/expected", {"tokens": tokens, "logits_fp32": logits(model, tokens), "logits_fp64": exact})


if __name__ == "__main__":
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(13)
    for name, (kind, config, options) in MODELS.items():
        make(name, kind, config, options, generator)
