"""Writes tests/golden/ops_print.json (how PyTorch prints tensors) and tests/golden/ops.json (calls of ATen operators and their
results in PyTorch), for tests/lua/tensors/ops_golden_test.lua.

A tensor is {dtype, shape, bits}: its elements as integers of the same size, so that equal means equal in every bit. A case is
{op, dtype, args, kwargs, ulps, results}; an argument {"tensor": name} stands for an input.

`ulps` is the allowed difference on another machine, where the math library may use other instructions (AVX2, AVX-512, none):
  0           One correctly rounded operation, or data is only moved. The inputs are small multiples of 1/8, so that sums and
              products of them are exact in every order: reductions and matrix multiplications belong here.
  2 * k       An element needs k roundings or calls of a function with an error below 1 ulp: each side is within k ulps of the
              true value. Results of 16-bit types are computed in float32 and rounded at the end, so their ulps are at most 1.
"""

import json

import torch
from golden import FOLDER

INTEGER_VIEW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
WIDE = [torch.float32, torch.float64]
NUMBERS = FLOATS + [torch.int64]
ALL = NUMBERS + [torch.bool]


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def make_inputs(dtype):
    """Returns inputs of odd sizes, exact in every dtype: multiples of 1/8 below 4; integers for int64, a mask for bool."""
    generator = torch.Generator().manual_seed(11)

    def numbers(*shape, low=-31, high=32):
        eighths = torch.randint(low, high, shape, generator=generator)
        if dtype == torch.bool:
            return eighths % 2 == 0
        return eighths if dtype == torch.int64 else (eighths / 8).to(dtype)

    return {
        "x": numbers(3, 5), "y": numbers(3, 5, low=1), "p": numbers(3, 5, low=1), "w": numbers(5, 4), "v": numbers(5), "s": numbers(), "l": numbers(4, 5),
        "b": numbers(2, 3, 5), "c": numbers(2, 5, 3), "e": numbers(0, 5), "q": numbers(1, 2, 7, 4), "k": numbers(2, 2, 3),
        "image": numbers(1, 2, 5, 5), "kernel": numbers(3, 2, 3, 3),
    }


SHARED = {
    "mask": torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5]),
    "rows": torch.tensor([2, 0, 2, 1]),
    "columns": torch.tensor([[0, 4, 2], [1, 1, 3], [4, 0, 0]]),
    "labels": torch.tensor([1, 4, 0]),
}


class Input(str):
    """An argument that is an input, given by its name."""


x, y, p, w, v, s, l, b, c, e, q, k, image, kernel, mask, rows, columns, labels = map(
    Input, "x y p w v s l b c e q k image kernel mask rows columns labels".split()
)

# (op, dtypes, ulps of float32 and float64, arguments, keyword arguments)
CASES = [
    # At most one rounding.
    ("add", ALL, 0, [x, y], {}), ("add", NUMBERS, 0, [x, y], {"alpha": 2}), ("add", NUMBERS, 0, [x, 2], {}), ("add", FLOATS, 0, [x, 0.5], {}),
    ("sub", NUMBERS, 0, [x, v], {}), ("rsub", NUMBERS, 0, [x, 3], {}), ("mul", ALL, 0, [x, y], {}), ("mul", NUMBERS, 0, [x, s], {}),
    ("div", NUMBERS, 0, [x, p], {}), ("div", NUMBERS, 0, [x, p], {"rounding_mode": "floor"}), ("div", NUMBERS, 0, [x, p], {"rounding_mode": "trunc"}),
    ("remainder", NUMBERS, 0, [x, p], {}), ("fmod", NUMBERS, 0, [x, p], {}), ("neg", NUMBERS, 0, [x], {}), ("abs", NUMBERS, 0, [x], {}),
    ("sign", ALL, 0, [x], {}), ("floor", FLOATS, 0, [x], {}), ("ceil", FLOATS, 0, [x], {}), ("round", FLOATS, 0, [x], {}), ("trunc", FLOATS, 0, [x], {}),
    ("frac", FLOATS, 0, [x], {}), ("reciprocal", FLOATS, 0, [p], {}), ("square", NUMBERS, 0, [x], {}),
    ("maximum", ALL, 0, [x, y], {}), ("minimum", ALL, 0, [x, y], {}), ("clamp", NUMBERS, 0, [x, -1, 1], {}), ("clamp", FLOATS, 0, [x], {"max": 0.5}),
    ("relu", NUMBERS, 0, [x], {}), ("leaky_relu", FLOATS, 0, [x, 0.25], {}), ("threshold", NUMBERS, 0, [x, 1, 0], {}), ("hardtanh", FLOATS, 0, [x], {}),
    ("where", ALL, 0, [mask, x, y], {}), ("masked_fill", NUMBERS, 0, [x, mask, 1], {}), ("addcmul", FLOATS, 0, [x, y, p], {"value": 2}),
    ("eq", ALL, 0, [x, y], {}), ("ne", ALL, 0, [x, y], {}), ("lt", ALL, 0, [x, y], {}), ("le", NUMBERS, 0, [x, 1], {}), ("gt", ALL, 0, [x, v], {}),
    ("ge", NUMBERS, 0, [x, s], {}), ("logical_and", ALL, 0, [x, y], {}), ("logical_not", ALL, 0, [x], {}), ("logical_xor", ALL, 0, [x, y], {}),
    ("bitwise_and", [torch.int64, torch.bool], 0, [x, y], {}), ("bitwise_xor", [torch.int64, torch.bool], 0, [x, 1], {}),
    ("bitwise_left_shift", [torch.int64], 0, [x, 3], {}), ("isnan", FLOATS, 0, [x], {}), ("isfinite", FLOATS, 0, [x], {}), ("nan_to_num", FLOATS, 0, [x], {}),
    # Sums and products that are exact in every order.
    ("sum", ALL, 0, [x], {}), ("sum", ALL, 0, [x], {"dim": [0], "keepdim": True}), ("sum", NUMBERS, 0, [x, [1]], {}), ("sum", FLOATS, 0, [x], {"dtype": "float64"}),
    ("sum", NUMBERS, 0, [e, [0]], {}), ("mean", FLOATS, 0, [x], {}), ("mean", FLOATS, 0, [x, [-1], True], {}), ("cumsum", NUMBERS, 0, [x, 1], {}),
    ("max", ALL, 0, [x], {}), ("max", NUMBERS, 0, [x, 1], {}), ("min", NUMBERS, 0, [x, 0, True], {}), ("amax", NUMBERS, 0, [x, [0, 1]], {}),
    ("argmax", NUMBERS, 0, [x], {}), ("argmin", NUMBERS, 0, [x, 1], {}), ("any", ALL, 0, [x], {}), ("all", ALL, 0, [x, 0], {}), ("median", NUMBERS, 0, [v], {}),
    ("count_nonzero", ALL, 0, [x], {}), ("matmul", NUMBERS, 0, [x, w], {}), ("mm", NUMBERS, 0, [x, w], {}), ("bmm", NUMBERS, 0, [b, c], {}),
    ("mv", NUMBERS, 0, [x, v], {}), ("dot", NUMBERS, 0, [v, v], {}), ("outer", NUMBERS, 0, [v, v], {}), ("einsum", FLOATS, 0, ["ij,jk->ik", [x, w]], {}),
    ("linear", FLOATS, 0, [x, l], {}), ("trace", NUMBERS, 0, [w], {}), ("norm", WIDE, 0, [x], {}), ("conv2d", FLOATS, 0, [image, kernel], {"padding": [1, 1]}),
    ("avg_pool2d", FLOATS, 0, [image, [2, 2]], {}), ("max_pool2d", FLOATS, 0, [image, [2, 2]], {}), ("mse_loss", WIDE, 0, [v, v], {}),
    # Operators that only move data.
    ("cat", ALL, 0, [[x, y, e], 0], {}), ("stack", ALL, 0, [[x, y], 1], {}), ("split", ALL, 0, [x, 2], {}), ("split", ALL, 0, [x, [1, 4], 1], {}),
    ("chunk", ALL, 0, [x, 2, 1], {}), ("unbind", ALL, 0, [x], {}), ("transpose", ALL, 0, [x, 0, 1], {}), ("permute", ALL, 0, [b, [2, 0, 1]], {}),
    ("reshape", ALL, 0, [x, [5, 3]], {}), ("flatten", ALL, 0, [b, 1], {}), ("unsqueeze", ALL, 0, [v, 0], {}), ("squeeze", ALL, 0, [q, 0], {}),
    ("expand", ALL, 0, [v, [2, 5]], {}), ("flip", ALL, 0, [x, [0, 1]], {}), ("roll", ALL, 0, [x, [2], [1]], {}), ("tile", ALL, 0, [v, [2]], {}),
    ("repeat", ALL, 0, [v, [2, 2]], {}), ("repeat_interleave", ALL, 0, [v, 2], {}), ("tril", ALL, 0, [x], {}), ("triu", ALL, 0, [x, 1], {}), ("diag", ALL, 0, [v], {}),
    ("select", ALL, 0, [x, 0, -1], {}), ("slice", ALL, 0, [x, 1, 1, 5, 2], {}), ("narrow", ALL, 0, [x, 1, 1, 3], {}), ("index_select", ALL, 0, [x, 0, rows], {}),
    ("gather", ALL, 0, [x, 1, columns], {}), ("scatter", NUMBERS, 0, [x, 1, columns, 7], {}), ("masked_select", ALL, 0, [x, mask], {}), ("nonzero", ALL, 0, [x], {}),
    ("embedding", FLOATS, 0, [w, rows], {}), ("sort", NUMBERS, 0, [x], {"stable": True, "dim": 1, "descending": True}), ("argsort", NUMBERS, 0, [v], {}),
    ("topk", NUMBERS, 0, [v, 3], {}), ("constant_pad_nd", ALL, 0, [v, [1, 2], 1], {}), ("unfold", ALL, 0, [v, 0, 3, 1], {}), ("searchsorted", NUMBERS, 0, [v, x], {}),
    ("zeros_like", ALL, 0, [x], {}), ("full_like", NUMBERS, 0, [x, 3], {}), ("movedim", ALL, 0, [b, 0, 2], {}), ("to", ALL, 0, [x, "float64"], {}),
    ("_to_copy", ALL, 0, [x], {"dtype": "bfloat16"}),
    # One call of a function with an error below 1 ulp (SLEEF's u10 forms, libm, MKL's vector functions including sqrt).
    *[(op, FLOATS, 2, [x], {}) for op in ("exp", "expm1", "sin", "cos", "tan", "tanh", "atan", "sinh", "cosh", "erf", "asinh", "exp2")],
    *[(op, FLOATS, 2, [p], {}) for op in ("sqrt", "log", "log1p", "log2", "log10")],
    ("pow", FLOATS, 2, [p, x], {}), ("pow", FLOATS, 2, [p, 0.3], {}), ("pow", NUMBERS, 0, [x, 2], {}), ("pow", FLOATS, 2, [2, x], {}), ("atan2", FLOATS, 2, [x, y], {}),
    ("hypot", FLOATS, 2, [x, y], {}),
    # Several roundings: 2 times their number. The comments list them.
    ("rsqrt", FLOATS, 2 * 2, [p], {}),  # sqrt, division
    ("sigmoid", FLOATS, 2 * 3, [x], {}),  # exp, addition, division
    ("silu", FLOATS, 2 * 4, [x], {}),  # sigmoid, product
    ("gelu", FLOATS, 2 * 8, [p], {}),  # x * 0.5 * (1 + erf(x * c)): c, product twofold through erf, erf, addition, two products
    ("gelu", FLOATS, 2 * 12, [p], {"approximate": "tanh"}),  # the polynomial's four roundings, tanh, addition, products
    ("softplus", FLOATS, 2 * 3, [p], {}),  # exp, log1p, division by beta
    ("lerp", FLOATS, 2 * 3, [p, p, 0.25], {}),  # difference, product, sum
    ("addcdiv", FLOATS, 2 * 3, [p, p, p], {}),  # quotient, product, sum
    ("softmax", FLOATS, 2 * 8, [x, -1], {}),  # exp, four additions, quotient, and the rounded reciprocal of some paths
    ("log_softmax", FLOATS, 2 * 10, [x, -1], {}),  # exp, four additions, log, subtractions; the results are above 1 in size
    ("logsumexp", FLOATS, 2 * 8, [p, [1]], {}),  # exp, four additions, log, addition
    ("prod", FLOATS, 2 * 14, [p], {}), ("prod", [torch.int64], 0, [p], {}), ("cumprod", FLOATS, 2 * 4, [p, 1], {}),  # n - 1 products
    ("var", FLOATS, 2 * 20, [x, [1]], {"correction": 1}), ("std", FLOATS, 2 * 21, [x, [1]], {"correction": 1}),  # Welford: 4 a value
    ("cross_entropy_loss", WIDE, 2 * 14, [x, labels], {}),  # log_softmax, mean of three
    ("linspace", [torch.float32], 2 * 3, [0, 1, 7], {}), ("eye", [torch.float32], 0, [3, 4], {}), ("arange", [torch.float32], 0, [1, 9, 2], {"dtype": "int64"}),
]  # fmt: skip


def resolve(argument, inputs):
    if isinstance(argument, Input):
        return inputs[argument]
    if isinstance(argument, list):
        return [resolve(item, inputs) for item in argument]
    return argument


def python_keyword(key, value):
    return getattr(torch, value) if key == "dtype" else value


def call(op, args, kwargs, inputs):
    """Calls the operator; PyTorch chooses among its overloads."""
    args = [resolve(argument, inputs) for argument in args]
    if op == "to":
        args[1] = getattr(torch, args[1])
    return getattr(torch.ops.aten, op)(*args, **{key: python_keyword(key, value) for key, value in kwargs.items()})


def encode(tensor):
    tensor = tensor.detach().contiguous()
    bits = tensor.reshape(-1).view(INTEGER_VIEW[tensor.element_size()]).tolist() if tensor.numel() else []
    return {"dtype": name_of(tensor.dtype), "shape": list(tensor.shape), "bits": bits}


def encode_argument(argument):
    if isinstance(argument, Input):
        return {"tensor": argument}
    return [encode_argument(item) for item in argument] if isinstance(argument, list) else argument


def encode_results(results):
    if isinstance(results, (tuple, list)):
        return [encode(result) for result in results]
    return [encode(results)]


def make_case(op, dtype, ulps, args, kwargs, inputs):
    """Returns the case, or None if PyTorch has no kernel of this operator for the dtype."""
    try:
        results = call(op, args, kwargs, {**inputs, **SHARED})
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented for" in str(error) or "not supported" in str(error):
            return None
        raise
    if dtype.itemsize == 2:
        ulps = min(ulps, 1)
    case = {"op": op, "dtype": name_of(dtype), "ulps": ulps, "results": encode_results(results)}
    case["args"] = [encode_argument(argument) for argument in args]
    if kwargs:
        case["kwargs"] = kwargs
    if isinstance(results, list):
        case["is_list"] = True
    return case


def printed():
    """Returns tensors and their printed texts: all styles of numbers, long lines, summaries, suffixes."""
    inf, nan = float("inf"), float("nan")
    tensors = [
        torch.tensor([1.0, 2.0]), torch.tensor([1.5, -2.25]), torch.tensor([1e-5, 1.0]), torch.tensor([1e9, 1.0]), torch.tensor([1e9, 2e9]),
        torch.tensor([0.0, -0.0]), torch.tensor([inf, -inf, nan, 1.0]), torch.tensor([inf, nan]), torch.tensor([nan, 0.5]), torch.tensor([1e-3, 2e-3]),
        torch.tensor(3.0), torch.tensor(-7), torch.tensor(True), torch.tensor([True, False]), torch.tensor([[1, -200], [3, 4]]),
        torch.tensor([]), torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.int64), torch.tensor([1.0, 2.5], dtype=torch.float64),
        torch.tensor([1.5, 300.0], dtype=torch.bfloat16), torch.tensor([1.5, 6e4], dtype=torch.float16), torch.tensor([1, 2], dtype=torch.int32),
        torch.tensor([255], dtype=torch.uint8), torch.arange(12.0).view(2, 2, 3), torch.arange(16.0).view(2, 2, 2, 2) / 3, torch.arange(40.0) / 7,
        torch.arange(30), torch.arange(1000), torch.arange(1001), torch.arange(2000.0).view(4, 500) / 3, torch.arange(2400).view(20, 30, 4),
        torch.zeros(1001, dtype=torch.bool), torch.full((30,), 123456.789, dtype=torch.float64), torch.tensor([123456.0, 0.125]), torch.ones(1, 1, 1),
        torch.full((8,), 12345.678, dtype=torch.float64), torch.full((3, 7), 0.1, dtype=torch.float64),
    ]  # fmt: skip
    return [{**encode(tensor), "text": str(tensor)} for tensor in tensors]


def main():
    torch.set_num_threads(1)
    (FOLDER / "ops_print.json").write_text(json.dumps(printed(), separators=(",", ":")))
    inputs = {dtype: make_inputs(dtype) for dtype in ALL}
    cases = [
        case
        for op, dtypes, ulps, args, kwargs in CASES
        for dtype in dtypes
        if (case := make_case(op, dtype, ulps, args, kwargs, inputs[dtype])) is not None
    ]
    golden = {
        "inputs": {name_of(dtype): {key: encode(value) for key, value in each.items()} for dtype, each in inputs.items()},
        "shared": {key: encode(value) for key, value in SHARED.items()},
        "cases": cases,
    }
    text = json.dumps(golden, separators=(",", ":"))
    (FOLDER / "ops.json").write_text(text)
    print(f"{len(cases)} cases of {len({case['op'] for case in cases})} operators, {len(text)} bytes")


if __name__ == "__main__":
    main()
