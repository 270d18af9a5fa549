#!/usr/bin/env bash
# Runs a command. Fails unless it exits with STATUS and prints TEXT:  expect_exit.sh STATUS TEXT command...
status=$1 text=$2
shift 2
output=$("$@" 2>&1)
got=$?
printf '%s\n' "$output"
[ "$got" = "$status" ] || { echo "exit status $got, expected $status"; exit 1; }
grep -qF -- "$text" <<<"$output" || { echo "not printed: $text"; exit 1; }
