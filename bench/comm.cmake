# Multi-rank, so a plain program: mpirun -n 2 build/release/bench/comm_bench --min 8 --max 64M
zt_add_bench(comm_bench comm_bench.cpp LIBRARIES zt_comm_objects CLI11::CLI11)
