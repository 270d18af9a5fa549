#!/usr/bin/env bash
# Sets up, builds and runs all tests. The last line is "N passed, N failed"; the exit status is 0 if none failed.
#
#   scripts/test.sh               tests the release build
#   scripts/test.sh --sanitize    uses the address and undefined-behaviour sanitizers
#   scripts/test.sh --tsan        uses the thread sanitizer (only tests that need no mpirun)
#   scripts/test.sh --all         also compiles every public header alone, and a tenth of the targets without unity builds
#   scripts/test.sh --exhaustive  gives the random and combined tests many more cases (20,000 of tests/numerics/random): takes hours
#   scripts/test.sh --oracle      installs the full PyTorch wheel, makes the golden files again, and runs the live comparisons too
#   scripts/test.sh ... -- ARGS   passes ARGS to ctest: -- -R comm
set -euo pipefail
source "$(dirname "$0")/env.sh"

preset=release
oracle=no
all=(-DZT_HEADER_TESTS=OFF -DZT_SEPARATE=)
exhaustive=OFF
while [ $# -gt 0 ]; do
  case $1 in
    --sanitize) preset=asan ;;
    --tsan) preset=tsan ;;
    # The tenth of the targets depends on the commit, so after some commits every file was compiled alone. Outside of a git
    # checkout it depends on the day.
    --all)
      commit=$(git rev-parse --short=7 HEAD 2> /dev/null) || commit=$(date +%j)
      all=(-DZT_HEADER_TESTS=ON "-DZT_SEPARATE=$((16#$commit % 10))") ;;
    --exhaustive) exhaustive=ON ;;
    --oracle) oracle=yes ;;
    -h|--help) show_help; exit 0 ;;
    --) shift; break ;;
    *) fail "unknown argument '$1': scripts/test.sh --help shows what there is" ;;
  esac
  shift
done

setup=(--tests)
if [ "$oracle" = yes ]; then setup+=(--oracle); fi
scripts/setup.sh "${setup[@]}"
build "$preset" all "${all[@]}" -DZT_EXHAUSTIVE=$exhaustive

if [ "$oracle" = yes ]; then
  for maker in tests/oracle/make_*.py; do
    step "golden files: $maker"
    venv=.venv-oracle
    case $maker in
      */make_adapters.py|*/make_chat_masks.py|*/make_cutoffs.py|*/make_generation.py|*/make_huggingface.py|*/make_packed.py|*/make_templates.py|*/make_tokenizers.py) venv=.venv-huggingface ;;
    esac
    "$venv/bin/python" "$maker"
  done
fi

# The suppression files list the leaks of Open MPI and the memory that LibTorch never frees. Both sanitizers stop at the first
# finding. As without them, an allocation that is too large fails, and os.exit ends a process whose threads run.
suppressions=$PWD/tests/sanitizers
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:detect_odr_violation=0:allocator_may_return_null=1"
export LSAN_OPTIONS="suppressions=$suppressions/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="suppressions=$suppressions/tsan.supp:ignore_noninstrumented_modules=1:allocator_may_return_null=1:report_thread_leaks=0"

select=()
if [ "$preset" = tsan ]; then select=(-LE mpi); fi

step "testing"
results=build/$preset/test_results
rm -rf "$results"
# Each test declares how many processors it uses. ctest never runs tests at once that need more than the machine has.
ctest --test-dir "build/$preset" --output-on-failure --output-junit "$PWD/$results/ctest.xml" -j "$(nproc)" "${select[@]}" "$@" || true

[ -f "$results/ctest.xml" ] || fail "ctest ran no tests (its output is above)"
status=0
python3 -B scripts/dev/count_tests.py "$results/ctest.xml" "$results" || status=$?
[ "$status" -ne 2 ] || fail "ctest ran no tests (its output is above)"
exit "$status"
