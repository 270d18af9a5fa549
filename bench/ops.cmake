# What the way from Lua to ATen costs.
zt_add_bench(ops_bench ops_bench.cpp LIBRARIES ztoolkit::binding)
