--- Gives the name that the option `precision` has for the dtype of a tensor.
return {float32 = "fp32", float64 = "fp64", bfloat16 = "bf16", float16 = "fp16"}
