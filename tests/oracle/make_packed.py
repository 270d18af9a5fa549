"""Quantises small matrices as bitsandbytes' nf4 with compressed statistics, and stores its tensors and what it dequantises.

Writes tests/golden/packed.safetensors. Needs bitsandbytes (tested with 0.50), in a virtual environment of its own. The matrices
are bf16 and have few groups, so that the mean of their scales is exact in any order of summation."""

import torch
from bitsandbytes import functional

import golden

SHAPES = {"one": (1, 64), "row": (3, 192), "panels": (37, 256), "blocks": (30, 640)}  # "blocks" has 300 groups: two blocks

generator = torch.Generator().manual_seed(1)
tensors = {"nf4_map": functional.create_dynamic_map()}
for name, shape in SHAPES.items():
    weight = (torch.randn(shape, generator=generator) * 0.05).to(torch.bfloat16)
    if name == "panels":
        weight[5] = 0
    codes, state = functional.quantize_4bit(weight, blocksize=64, compress_statistics=True, quant_type="nf4")
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
golden.save("packed", tensors)
