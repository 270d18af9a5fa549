"""The llama.cpp side of infer_vs.py: writes a model as GGUF, and generates through the low-level interface of llama-cpp-python.

A file holds fp32 or bf16, or llama.cpp quantises it: int8 is its format Q8_0, and int4 is Q4_0, where the head is Q6_K.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import needs

needs.packages("numpy", "torch", environment=".venv-peers", starter="infer/infer_vs.py")

import numpy

QUANTISED = {"int8": "LLAMA_FTYPE_MOSTLY_Q8_0", "int4": "LLAMA_FTYPE_MOSTLY_Q4_0"}
SEQUENCES = 16
PROMPT = 512  # the longest prompt
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")  # GPT-2 stores [in, out]


def gguf_path(folder, weights):
    return f"{folder}_{weights}.gguf"


def interleaved(matrix, heads):
    """Moves the rows of a q or k matrix: llama.cpp rotates neighbours, transformers rotates the two halves of a head."""
    return matrix.reshape(heads, 2, matrix.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


def tensors(folder, config, dtype):
    """Yields (name in GGUF, array, type in GGUF) for every tensor of the model. Holds one tensor at a time."""
    import gguf
    import safetensors
    import torch

    arch = gguf.MODEL_ARCH.GPT2 if config["model_type"] == "gpt2" else gguf.MODEL_ARCH.LLAMA
    names = gguf.get_tensor_name_map(arch, config.get("n_layer") or config["num_hidden_layers"])
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safetensors.safe_open(path, framework="pt") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
                if name.endswith(TRANSPOSED):
                    tensor = tensor.T
                elif name.endswith("q_proj.weight"):
                    tensor = interleaved(tensor, config["num_attention_heads"])
                elif name.endswith("k_proj.weight"):
                    tensor = interleaved(tensor, config["num_key_value_heads"])
                known = names.get_name(name, try_suffixes=(".weight", ".bias"))
                # llama.cpp adds vectors and position embeddings in fp32 and has no kernel for other types.
                if dtype == "fp32" or tensor.ndim == 1 or known.startswith("position_embd"):
                    yield known, tensor.float().contiguous().numpy(), gguf.GGMLQuantizationType.F32
                else:
                    bytes_of = tensor.to(torch.bfloat16).contiguous().view(torch.uint8).numpy()
                    yield known, bytes_of, gguf.GGMLQuantizationType.BF16


def add_config(writer, config):
    """Adds the keys that describe the model. There is no tokenizer: the benchmark sends and receives token ids."""
    if config["model_type"] == "gpt2":
        writer.add_context_length(config["n_positions"])
        writer.add_embedding_length(config["n_embd"])
        writer.add_feed_forward_length(4 * config["n_embd"])
        writer.add_block_count(config["n_layer"])
        writer.add_head_count(config["n_head"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    else:
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")


def write_gguf(folder, path, dtype):
    """Writes the model of transformers in `folder` as one GGUF file."""
    import gguf

    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    writer = gguf.GGUFWriter(path, config["model_type"])
    add_config(writer, config)
    for name, array, kind in tensors(folder, config, dtype):
        writer.add_tensor_info(name, array.shape, array.dtype, array.nbytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, array, _ in tensors(folder, config, dtype):
        writer.write_tensor_data(array)
    writer.close()


def quantise(plain, path, weights, threads):
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, QUANTISED[weights])
    params.nthread = threads
    status = llama_cpp.llama_model_quantize(plain.encode(), path.encode(), params)
    if status != 0:
        raise RuntimeError(f"llama.cpp cannot quantise {plain} (status {status}): its messages are above")


class LlamaCppSide:
    """Loads a GGUF file once, and answers up to 16 prompts of equal length in one batch. Not thread-safe."""

    @staticmethod
    def convert(folder, options, weights):
        """Writes the GGUF file of this format, and the plain one that it is made of."""
        plain = gguf_path(folder, "plain")
        if not pathlib.Path(plain).exists():
            write_gguf(folder, plain, options.dtype)
        if weights != "plain":
            quantise(plain, gguf_path(folder, weights), weights, options.threads)

    def __init__(self, folder, options, weights):
        import llama_cpp

        self.api = llama_cpp
        llama_cpp.llama_backend_init()
        path = gguf_path(folder, weights)
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise RuntimeError("llama.cpp cannot load the model: its messages are above")
        params = llama_cpp.llama_context_default_params()
        length = max(PROMPT + options.tokens, 256)
        params.n_ctx = SEQUENCES * -(-length // 256) * 256
        params.n_seq_max = SEQUENCES
        params.n_threads = params.n_threads_batch = options.threads
        if options.dtype == "fp32":  # By default the cache is fp16, and flash attention casts a cache of fp32 to fp16.
            params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context: its messages are above")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(PROMPT, 0, 1)

    def decode(self, rows, begin):
        """Runs the model on rows of tokens, one per sequence, from position `begin` on. Returns the likeliest next tokens."""
        sequences, length = rows.shape
        batch, count = self.batch, rows.size
        batch.n_tokens = count
        numpy.ctypeslib.as_array(batch.token, (count,))[:] = rows.reshape(-1)
        numpy.ctypeslib.as_array(batch.pos, (count,))[:] = numpy.tile(numpy.arange(begin, begin + length), sequences)
        numpy.ctypeslib.as_array(batch.n_seq_id, (count,))[:] = 1
        for place in range(count):
            batch.seq_id[place][0] = place // length
        wanted = numpy.ctypeslib.as_array(batch.logits, (count,))
        wanted[:] = 0
        wanted[length - 1::length] = 1
        status = self.api.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status} for {sequences} sequences of {length} tokens")
        logits = numpy.ctypeslib.as_array(self.api.llama_get_logits(self.context), (sequences, self.vocabulary))
        return logits.argmax(1)

    def generate(self, prompts, tokens):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), False)
        rows = numpy.array(prompts, dtype=numpy.int32)
        answers, position = [], 0
        for _ in range(tokens):
            answers.append(self.decode(rows, position))
            position += rows.shape[1]
            rows = answers[-1][:, None]
        return [int(answer[0]) for answer in answers]
