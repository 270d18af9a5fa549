# What all code that computes is compiled with, in this tree and in modules outside it: numbers do not depend on what the
# compiler fuses, and errno and traps are not used.
set(ZT_NUMERIC_OPTIONS -ffp-contract=off -fno-math-errno -fno-trapping-math)
