# Sourced by the other scripts: the repository's root as the current folder, messages, the right CMake, what Open MPI needs.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '==> %s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# The comment at the head of the calling script is its help.
show_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# setup.sh puts a newer CMake into the virtual environment where the system's is too old.
if [ -x .venv/bin/cmake ]; then PATH="$PWD/.venv/bin:$PATH"; fi

if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# A compiler cache serves every clone of the repository, wherever it lies.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

build() { # preset [target]: without a target everything
  step "building (preset $1)"
  cmake --preset "$1"
  cmake --build "build/$1" ${2:+--target "$2"}
}
