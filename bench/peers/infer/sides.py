"""The sides transformers, DeepSpeed and ctranslate2 of infer_vs.py. The side of llama.cpp is in llama_cpp_side.py.

A side has three functions. `convert(folder, options, weights)` writes the files it needs beside the model. It runs in a process
of its own. The constructor has the same arguments and loads those files. `generate(prompts, tokens)` answers prompts of equal
length with the likeliest tokens, never stops early, and returns the tokens of the first answer.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import needs

needs.packages("numpy", "torch", environment=".venv-peers", starter="infer/infer_vs.py")

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class TransformersSide:
    @staticmethod
    def convert(folder, options, weights):
        """Does nothing: transformers reads the folder as it is."""

    def __init__(self, folder, options, weights):
        import transformers

        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[options.dtype]).eval()

    @torch.inference_mode()
    def generate(self, prompts, tokens):
        ids = torch.tensor(prompts)
        out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                                  do_sample=False, pad_token_id=0)
        return out[0, ids.shape[1]:].tolist()


class DeepspeedSide(TransformersSide):
    def __init__(self, folder, options, weights):
        super().__init__(folder, options, weights)
        import deepspeed

        config = {"dtype": DTYPES[options.dtype], "replace_with_kernel_inject": False}
        self.model = deepspeed.init_inference(self.model, config=config)


class NumberTokenizer:
    """The tokenizer that ctranslate2's converter asks for: the word of a token is its number."""

    bos_token = eos_token = unk_token = "0"

    def __init__(self, size):
        self.size = size

    def get_vocab(self):
        return {str(token): token for token in range(self.size)}


class Ctranslate2Side:
    @staticmethod
    def convert(folder, options, weights):
        import ctranslate2
        import transformers

        class Converter(ctranslate2.converters.TransformersConverter):
            def load_tokenizer(self, tokenizer_class, model_name_or_path, **kwargs):
                return NumberTokenizer(transformers.AutoConfig.from_pretrained(model_name_or_path).vocab_size)

        if weights == "plain" and options.dtype == "bf16" and "bfloat16" not in ctranslate2.get_supported_compute_types("cpu"):
            print("ctranslate2 has no bf16 on this CPU: it widens the parameters to fp32 and computes with them", flush=True)
        format = "int8" if weights == "int8" else {"fp32": "float32", "bf16": "bfloat16"}[options.dtype]
        Converter(folder).convert(Ctranslate2Side.path(folder, weights), quantization=format)

    @staticmethod
    def path(folder, weights):
        return f"{folder}_ctranslate2_{weights}"

    def __init__(self, folder, options, weights):
        import ctranslate2

        self.generator = ctranslate2.Generator(self.path(folder, weights), device="cpu", intra_threads=options.threads)

    def generate(self, prompts, tokens):
        words = [[str(token) for token in prompt] for prompt in prompts]
        results = self.generator.generate_batch(words, max_length=tokens, min_length=tokens, beam_size=1, sampling_topk=1,
                                                include_prompt_in_result=False, end_token=[])
        return list(results[0].sequences_ids[0])


def side_of(name):
    """Returns the class of a side."""
    if name == "llama_cpp":
        import llama_cpp_side

        return llama_cpp_side.LlamaCppSide
    return {"transformers": TransformersSide, "deepspeed": DeepspeedSide, "ctranslate2": Ctranslate2Side}[name]
