zt_add_bench(nn_bench nn_attention.cpp nn_bench.cpp nn_cuda.cpp nn_loops.cpp LIBRARIES zt_nn_objects)
