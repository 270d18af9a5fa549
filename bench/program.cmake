zt_add_bench(program_bench program_bench.cpp LIBRARIES ztoolkit::zt)
