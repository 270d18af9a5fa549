"""The rooms of each module, from bottom to top: the table that scripts/dev/layering.py checks.

A room is a direct subfolder of a module's folder, with all files below it. "." is the room of the files that lie in the module's
folder itself. In the SDK, modules/io and the binding, the folder `src` and the folder of the public headers are not rooms: a public
header belongs to the room of the code of the same name. A room may use the rooms before it in its module's list: those in earlier
lines, and those to its left.

Add a room to its list together with its first file, and remove it together with its last file.
"""

ROOMS = {
    "modules/sdk": (
        (".",),
        ("base",),
        ("gemm", "reshard"),
        ("process",),
        ("text",),
        ("random", "comm", "model"),
        ("program",),
        ("play",),
        ("verify",),
        ("execute",),
        ("plan",),
        ("simulate",),
        ("train",),
    ),
    "modules/io": ((".",),),
    "lua/binding": (
        (".",),
        ("ops",),
        ("tensor",),
        ("program",),
        ("optimizer",),
        ("core",),
    ),
    "comm": (
        ("core",),
        ("recorder",),
        ("backend",),
        ("queue", "channel"),
        ("shm",),
        ("messages",),
        ("local", "mpi", "null", "two_level", "nccl"),
        ("mesh",),
        ("lua",),
    ),
    "zero": (
        ("compress", "residency"),
        (".",),
        ("lua",),
    ),
    "pipe": (
        ("schedule",),
        ("split",),
        ("lua",),
    ),
    "moe": (
        ("routing",),
        ("exchange", "experts"),
        ("lua",),
    ),
    "ckpt": (
        ("folder", "hdf5", "reshard"),
        ("format",),
        ("load", "save", "safetensors"),
        ("lua",),
    ),
    "modules/nn": (
        ("cpu",),
        ("cuda",),
        ("parts",),
        ("attention",),
        ("context",),
        ("norms",),
        ("layers",),
        ("losses",),
        ("lua",),
        ("models",),
    ),
    "modules/optim": (
        ("flat",),
        ("tensor",),
        (".",),
    ),
    "modules/data": (
        ("sentencepiece", "tokens", "huggingface", "template"),
        ("tokenizer", "stream"),
        ("lua",),
    ),
    "modules/gemm": (("packed",), (".",)),
    "modules/rlhf": (("rows", "advantages"), ("lua",)),
    "modules/infer": (("cache", "measure"), ("schedule", "sample"), ("engine",), ("lua",)),
    "modules/offload": (
        ("files",),
        ("device",),
        ("move",),
        (".",),
    ),
    "modules/example": ((".",),),
    "modules/host": (
        ("ending", "output", "loading", "memory"),
        ("ranks",),
        (".", "launcher"),
    ),
}
