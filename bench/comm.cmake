# Multi-rank, so a plain program: mpirun -n 2 --bind-to core build/release/bench/comm_bench --max 64M
zt_add_bench(comm_bench comm_bench.cpp comm_subjects.cpp LIBRARIES zt_comm_objects CLI11::CLI11)
