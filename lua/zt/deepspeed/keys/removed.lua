--- Keys that DeepSpeed 0.19 has removed and refuses. Old files may have them, so each text says what to use here. DeepSpeed's
-- schema no longer has the keys inside these blocks, so their type is "any".

return {
  {path = "", extends = true, rows = {
    {"amp", "refused", "any", "removed from DeepSpeed; give \"bf16\": {\"enabled\": true} (or fp16)"},
    {"compression_training", "refused", "any",
     "removed from DeepSpeed; a layer written in Lua may quantise or prune its weights"},
    {"curriculum_learning", "refused", "any",
     "removed from DeepSpeed; batches may change their length from step to step: cut them in the script"},
    {"eigenvalue", "refused", "any", "removed from DeepSpeed; it served quantised training only"},
    {"elasticity", "refused", "any",
     "removed from DeepSpeed; give the batch sizes: a checkpoint resumes on any number of ranks"},
    {"graph_harvesting", "refused", "any", "removed from DeepSpeed; a program is fixed before its first step anyway",
     default = false},
    {"nebula", "refused", "any", "removed from DeepSpeed; checkpoints are written by zt.ckpt"},
    {"progressive_layer_drop", "refused", "any", "removed from DeepSpeed; a layer written in Lua may pass its input on"},
    {"quantize_training", "refused", "any", "removed from DeepSpeed; give \"bf16\": {\"enabled\": true} (or fp16)"},
    {"sparse_attention", "refused", "any",
     "removed from DeepSpeed; attention takes `segments`, and long sequences run on flash attention"},
    {"sparse_gradients", "refused", "any", "removed from DeepSpeed; gradients of embeddings are dense", default = false},
  }},
}
