# Numeric options for all code that computes, in this tree and in modules outside of it. The compiler must not fuse
# multiplications and additions, so results do not depend on its choices. errno and floating-point traps are not used.
set(ZT_NUMERIC_OPTIONS -ffp-contract=off -fno-math-errno -fno-trapping-math)
