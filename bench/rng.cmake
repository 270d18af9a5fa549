zt_add_bench(rng_bench rng_bench.cpp LIBRARIES ztoolkit::zt)
