zt_add_bench(data_bench data_bench.cpp LIBRARIES zt_data_objects)
