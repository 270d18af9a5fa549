zt_add_bench(nn_bench nn_bench.cpp LIBRARIES zt_nn_objects)
