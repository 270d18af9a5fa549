#!/usr/bin/env bash
# Makes the training data of the main experiment: corpus/gcide.txt, the text of the dictionary in the Debian package dict-gcide
# (29 MB of plain English), and corpus/gcide.npy, its tokens with a vocabulary of 4,096 pieces. A second run does nothing.
#
#   scripts/corpus.sh            needs the release build (scripts/run.sh makes it)
#   ZT_BUILD=build/debug scripts/corpus.sh      use another build
set -euo pipefail
cd "$(dirname "$0")/.."

VOCAB=4096
SOURCE=/usr/share/dictd/gcide.dict.dz
ZTOOLKIT=${ZT_BUILD:-build/release}/bin/ztoolkit
TEXT=corpus/gcide.txt
TOKENS=corpus/gcide.npy
NEEDED_MB=150

step() { printf '==> %s\n' "$*"; }
fail() { printf 'corpus: %s\n' "$*" >&2; exit 1; }

case ${1:-} in
  '') ;;
  -h|--help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) fail "unknown argument '$1': this script takes none" ;;
esac

# Writes the dictionary as running text: one paragraph per line, an empty line between entries. Drops the notices before the first
# entry (an entry begins with a line that has a \pronunciation\), the pronunciations, the braces around cross references, and the
# notes on the source of a paragraph, which are a tenth of the file.
clean() {
  awk '
    function flush_paragraph() {
      gsub(/\[[^][]*(1913 Webster|Webster 1913|WordNet [0-9]|PJC|Century Dict)[^][]*\]/, "", paragraph)
      gsub(/\\[^\\]*\\/, "", paragraph)
      gsub(/[{}]/, "", paragraph)
      gsub(/[ \t]+/, " ", paragraph)
      gsub(/ ,/, ",", paragraph)
      gsub(/^ | $/, "", paragraph)
      if (paragraph != "") print paragraph
      paragraph = ""
    }
    # An entry begins in the first column. Its pronunciation may continue on the next line.
    /^[^ \t].*\\[^\\]*\\/ || (/^[^ \t].*\\/ && in_entries && paragraph == "") {
      flush_paragraph()
      if (in_entries) print ""
      in_entries = 1
    }
    !in_entries { next }
    /^[ \t]*$/ { flush_paragraph(); next }
    { paragraph = paragraph " " $0 }
    END { flush_paragraph() }'
}

require_space() {
  local free_mb
  free_mb=$(df -Pm corpus | awk 'NR == 2 {print $4}')
  [ "$free_mb" -ge "$NEEDED_MB" ] || fail "only $free_mb MB are free in $PWD/corpus, $NEEDED_MB MB are needed: free some space and run this again"
}

make_text() {
  [ -r "$SOURCE" ] || fail "there is no $SOURCE: install the package dict-gcide (scripts/setup.sh does)"
  step "extracting $SOURCE to $TEXT"
  # iconv -c drops the few bytes that are not UTF-8. It then exits with an error status, which is ignored.
  if ! { zcat "$SOURCE" | { iconv -c -f utf-8 -t utf-8 || true; } | clean; } >"$TEXT.partial"; then
    fail "cannot write $TEXT (the message is above): is $SOURCE damaged, or the disk full?"
  fi
  [ "$(wc -c <"$TEXT.partial")" -gt 1000000 ] || fail "$SOURCE gave next to no text: is it damaged? Reinstall the package dict-gcide"
  mv "$TEXT.partial" "$TEXT"
}

make_tokens() {
  [ -x "$ZTOOLKIT" ] || fail "there is no $ZTOOLKIT: build it with 'cmake --preset release && cmake --build --preset release', or use scripts/run.sh"
  step "learning $VOCAB pieces and tokenizing $TEXT to $TOKENS"
  "$ZTOOLKIT" tokenize --input "$TEXT" --output "$TOKENS" --vocab "$VOCAB" ||
    fail "tokenizing failed (its message is above)"
}

if [ -e "$TOKENS" ]; then exit 0; fi
mkdir -p corpus
trap 'rm -f "$TEXT.partial"' EXIT
require_space
if [ ! -e "$TEXT" ]; then make_text; fi
make_tokens
