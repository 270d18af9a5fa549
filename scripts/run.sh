#!/usr/bin/env bash
# Sets up, builds, prepares the corpus and trains the main model on two ranks with one thread each.
# Arguments go to scripts/exp/gpt.lua: scripts/run.sh --steps 100 --stage 1
set -euo pipefail
source "$(dirname "$0")/env.sh"

case ${1:-} in
  -h|--help)
    show_help
    # Prints also the experiment's own options if the host is already built.
    if [ -x build/release/bin/ztoolkit ]; then exec build/release/bin/ztoolkit run scripts/exp/gpt.lua --help; fi
    exit 0 ;;
esac

scripts/setup.sh
build release toolkit
scripts/corpus.sh

step "training: scripts/exp/gpt.lua on 2 ranks"
export OMP_NUM_THREADS=1
exec build/release/bin/ztoolkit run -n 2 scripts/exp/gpt.lua "$@"
