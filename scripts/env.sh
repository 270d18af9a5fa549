# Sourced by the other scripts. Changes to the repository's root, defines messages and `build`, and sets up CMake, Open MPI and
# ccache.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '==> %s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# Prints the comment at the head of the calling script.
show_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# setup.sh installs a newer CMake into the virtual environment if the system's is too old.
if [ -x .venv/bin/cmake ]; then PATH="$PWD/.venv/bin:$PATH"; fi

if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# All clones of the repository share one compiler cache, whatever their folder.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

build() { # preset target [cmake options...]
  local preset=$1 target=$2
  shift 2
  step "building (preset $preset)"
  cmake --preset "$preset" "$@"
  cmake --build "build/$preset" --target "$target"
}
