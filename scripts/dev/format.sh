#!/usr/bin/env bash
# Checks the layout of C++ files by .clang-format. With --fix, formats the files.
set -euo pipefail
source "$(dirname "$0")/../env.sh"

mode=(--dry-run -Werror)
case ${1:-} in
  --fix) mode=(-i) ;;
  -h|--help) show_help; exit 0 ;;
  "") ;;
  *) fail "unknown argument '$1': give --fix or nothing" ;;
esac
folders=()
for folder in modules comm zero pipe moe ckpt lua tests bench; do
  if [ -d "$folder" ]; then folders+=("$folder"); fi
done
find "${folders[@]}" -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 clang-format "${mode[@]}"
