zt_add_bench(gemm_bench gemm_bench.cpp LIBRARIES zt_onednn_objects)
