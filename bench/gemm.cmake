zt_add_bench(gemm_bench gemm_bench.cpp LIBRARIES zt_onednn_objects)
zt_add_bench(products_bench products_bench.cpp LIBRARIES ztoolkit::zt)
