#!/usr/bin/env bash
# Tests scripts/corpus.sh on a made-up dictionary: the text that it keeps, a second run (does nothing), and the files after
# failures.
#   corpus_test.sh BUILD_FOLDER
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/../../.." && pwd)
export ZT_BUILD=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

mkdir scripts
sed -e "s|^SOURCE=.*|SOURCE=$folder/dict.gz|" -e 's|^VOCAB=.*|VOCAB=600|' "$source_folder/scripts/corpus.sh" >scripts/corpus.sh

die() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
run() { bash scripts/corpus.sh >out 2>&1; }
expect_refusal() { # words of the message
  if run; then die "it should have failed: $1"; fi
  grep -q "$1" out || die "no '$1' in: $(cat out)"
  [ ! -e corpus/gcide.npy ] || die "it failed ($1) and left tokens"
}

expect_refusal "install the package dict-gcide"
echo "no gzip" >dict.gz
expect_refusal "is .*dict.gz damaged"
echo "short" | gzip >dict.gz
expect_refusal "next to no text"
[ -z "$(ls corpus)" ] || die "failed runs left $(ls corpus)"

{
  printf '00-database-info\n   A notice.\n\n'
  printf 'Able \\A"ble\\, a.\n   Fit;\n   {apt}.\n   [1913 Webster]\n\n   2. Strong. [R.]\n\nAbly \\A"bly\\, adv.\n   In a fit way. \xff\n\n'
  awk 'BEGIN {
    srand(1)
    for (i = 0; i < 30000; ++i) {
      printf "Word%d \\Word\\, n.\n   ", i
      for (j = 0; j < 8; ++j) printf "%c%c%c%s ", 97 + rand() * 26, 97 + rand() * 26, 97 + rand() * 26, "ing"
      print "\n"
    }
  }'
} | gzip >dict.gz
echo "left by a killed run" >corpus/gcide.npy.partial
echo "left by a killed run" >corpus/gcide.txt.partial
run || die "$(cat out)"
[ "$(ls corpus | tr '\n' ' ')" = "gcide.json gcide.model gcide.npy gcide.txt " ] || die "it left $(ls corpus)"
head -n 5 corpus/gcide.txt | diff - <(printf 'Able, a. Fit; apt.\n2. Strong. [R.]\n\nAbly, adv. In a fit way.\n\n') || die "the text was cleaned in another way"

before=$(stat -c %Y.%i corpus/gcide.npy)
run || die "a second run failed: $(cat out)"
[ "$(stat -c %Y.%i corpus/gcide.npy)$(cat out)" = "$before" ] || die "a second run did something: $(cat out)"
echo "corpus.sh: all as expected"
