"""Common code of the scripts that make golden files. tests/oracle/make_NAME.py writes tests/golden/NAME.safetensors."""

import json
import pathlib
import struct

import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden"
CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}


def save(name, tensors):
    """Writes {name: tensor} as tests/golden/NAME.safetensors."""
    header, blobs, offset = {}, [], 0
    for key, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        blob = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[key] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def greedy_answer(model, prompt, count):
    """Returns the likeliest `count` tokens after the prompt by a model of transformers, and their log-probabilities."""
    tokens, logprobs = list(prompt), []
    for _ in range(count):
        with torch.no_grad():
            of_last = model(torch.tensor([tokens])).logits[0, -1].double().log_softmax(-1)
        tokens.append(int(of_last.argmax()))
        logprobs.append(float(of_last.max()))
    return {"tokens": tokens[len(prompt):], "logprobs": logprobs}
