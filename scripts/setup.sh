#!/usr/bin/env bash
# Installs everything ztoolkit needs to build and to test: system packages and a project-local virtual environment.
# A second run does nothing.
#
#   scripts/setup.sh             installs what building, testing and training need
#   scripts/setup.sh --tests     installs also Chromium, in which the tests open pages
#   scripts/setup.sh --oracle    installs also the full PyTorch wheel in .venv-oracle, transformers in .venv-huggingface, which
#                                uses that PyTorch, and in .venv-records the tools that read the records of runs: for golden
#                                files and comparisons
#   scripts/setup.sh --peers     installs as --oracle, in .venv-peers ctranslate2 and llama.cpp, which is built here (about 8
#                                minutes), for bench/peers/infer, and in .venv-rlhf TRL, for bench/peers/rlhf_vs.py
#   ZT_TORCH_DIR=/path           uses the LibTorch in that folder (with include/ and lib/) instead of the wheel
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH_VERSION=2.11.0
CUDA_WHEELS=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85) # libtorch_cpu links to them even without a GPU
TEST_WHEELS=(numpy==2.2.6 h5py==3.14.0)
DEEPSPEED_WHEEL=deepspeed==0.19.8
BITSANDBYTES_WHEEL=bitsandbytes==0.50.2
HUGGINGFACE_WHEELS=(transformers==5.23.0 safetensors==0.8.0 psutil==7.2.2)
ADAPTER_WHEELS=(accelerate==1.15.0 peft==0.21.2)
PEERS_WHEELS=(ctranslate2==4.8.5 gguf==0.19.0)
LLAMA_CPP=llama-cpp-python==0.3.36 # has no wheels
RLHF_WHEELS=(trl==1.16.0 datasets==5.2.0)
RECORDS_WHEELS=(tensorboard==2.21.0 mlflow-skinny==3.17.2 wandb==0.31.0)
MIN_CMAKE=3.25
NEEDED_MB=6000

step() { printf '==> %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

tests=no
oracle=no
peers=no
for argument in "$@"; do
  case $argument in
    --tests) tests=yes ;;
    --oracle) oracle=yes ;;
    --peers) oracle=yes peers=yes ;;
    -h|--help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown argument '$argument': give --tests, --oracle, --peers or nothing" ;;
  esac
done

# The package names are the same in Debian 12 and Ubuntu 24.04 (untested).
PACKAGES=(
  build-essential cmake ninja-build ccache mold pkg-config git ca-certificates
  python3 python3-venv
  libopenmpi-dev openmpi-bin
  libluajit-5.1-dev luajit lua-check lua-unit
  libgtest-dev libgmock-dev libbenchmark-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev
  libsentencepiece-dev sentencepiece
  libpcre2-dev libutf8proc-dev
  libhdf5-dev hdf5-tools liburing-dev libxxhash-dev libblis4-serial
  clang-format universal-ctags
  dict-gcide
)

[ -r /etc/os-release ] || fail "cannot read /etc/os-release, so the distribution is unknown: install the packages listed in $0 by hand"
. /etc/os-release
case "$ID-${VERSION_ID:-}" in
  debian-12) ;;
  ubuntu-24.04) step "Ubuntu 24.04: the package names are known but this script is untested here" ;;
  *) fail "unknown distribution '${PRETTY_NAME:-$ID}': this script knows Debian 12 and Ubuntu 24.04. Install the packages listed in $0 by hand, then build with cmake --preset release" ;;
esac

require_space() { # folder
  local free_mb
  free_mb=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  [ "$free_mb" -ge "$NEEDED_MB" ] || fail "only $free_mb MB are free in $1, $NEEDED_MB MB are needed: free some space and run this again"
}

# Ubuntu's package of that name asks for snap, which containers lack: there the tests that need it are skipped and say so.
if [ "$tests" = yes ] && [ "$ID" = debian ]; then PACKAGES+=(chromium); fi

install_system_packages() {
  local missing=() installed package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | awk '$1 == "installed" {print $2}')
  for package in "${PACKAGES[@]}"; do
    grep -qx -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  require_space /var
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing: ${missing[*]}. Run this as root, or install sudo"
    sudo=(sudo)
  fi
  step "installing system packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${sudo[@]}" apt-get update -q &&
         "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install the packages (its last lines are above, all of them in $log): check the network, the package sources and the free disk space"
  fi
  rm -f "$log"
}

pip_install() { # virtual environment, name for messages, pip arguments...
  local venv=$1 what=$2
  shift 2
  require_space .
  step "installing $what into $venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" ||
    fail "pip could not install $what (its message is above): check the network and the free disk space, then run this again"
}

make_venv() { # folder
  [ -x "$1/bin/python" ] && return
  step "making the virtual environment $1"
  /usr/bin/python3 -m venv "$1" || fail "cannot make a virtual environment in $1: is python3-venv installed, is the disk full?"
}

# The stamp file in an environment holds the list of what was installed. If the wanted list differs, setup installs again.
up_to_date() { [ "$(cat "$1/zt-setup-stamp" 2>/dev/null)" = "$2" ]; }
stamp() { printf '%s\n' "$2" >"$1/zt-setup-stamp"; }

has_gpu() { [ -e /dev/nvidiactl ]; }

install_venv() {
  local want cmake_version
  cmake_version=$(/usr/bin/cmake --version | awk 'NR == 1 {print $3}')
  want="tests ${TEST_WHEELS[*]}"
  if [ -z "${ZT_TORCH_DIR:-}" ]; then want="torch $TORCH_VERSION $(has_gpu && echo cuda || echo cpu) $want"; fi
  up_to_date .venv "$want" && return
  make_venv .venv
  if [ -n "${ZT_TORCH_DIR:-}" ]; then
    [ -e "$ZT_TORCH_DIR/lib/libtorch_cpu.so" ] || fail "ZT_TORCH_DIR=$ZT_TORCH_DIR has no lib/libtorch_cpu.so: give the folder that holds LibTorch's include/ and lib/"
  elif has_gpu; then
    pip_install .venv "LibTorch (torch $TORCH_VERSION with CUDA)" "torch==$TORCH_VERSION"
  else
    pip_install .venv "LibTorch (torch $TORCH_VERSION, CPU part)" --no-deps "torch==$TORCH_VERSION" "${CUDA_WHEELS[@]}"
  fi
  pip_install .venv "Python packages of the tests" "${TEST_WHEELS[@]}"
  if [ "$(printf '%s\n%s\n' "$MIN_CMAKE" "$cmake_version" | sort -V | head -n 1)" != "$MIN_CMAKE" ]; then
    pip_install .venv "CMake (the system's $cmake_version is older than $MIN_CMAKE)" "cmake>=$MIN_CMAKE,<4"
  fi
  stamp .venv "$want"
}

install_oracle() {
  local want="torch $TORCH_VERSION numpy $DEEPSPEED_WHEEL $BITSANDBYTES_WHEEL"
  up_to_date .venv-oracle "$want" && return
  make_venv .venv-oracle
  pip_install .venv-oracle "the full PyTorch wheel (about 5 GB)" "torch==$TORCH_VERSION" "${TEST_WHEELS[@]}"
  pip_install .venv-oracle "DeepSpeed, for its gates" "$DEEPSPEED_WHEEL"
  pip_install .venv-oracle "bitsandbytes, for its format nf4" --no-deps "$BITSANDBYTES_WHEEL"
  stamp .venv-oracle "$want"
}

install_huggingface() {
  local want="${HUGGINGFACE_WHEELS[*]} ${ADAPTER_WHEELS[*]}"
  up_to_date .venv-huggingface "$want" && return
  make_venv .venv-huggingface
  pip_install .venv-huggingface "Hugging Face's transformers" "${HUGGINGFACE_WHEELS[@]}"
  local packages
  packages=$(.venv-huggingface/bin/python -c 'import site; print(site.getsitepackages()[0])')
  .venv-oracle/bin/python -c 'import site; print(site.getsitepackages()[0])' >"$packages/oracle.pth"
  pip_install .venv-huggingface "accelerate and PEFT, for quantised models and adapters" --no-deps "${ADAPTER_WHEELS[@]}"
  stamp .venv-huggingface "$want"
}

# Lets an environment use the packages of .venv-huggingface and .venv-oracle. Python does not read .pth files in a folder that one
# added, so both folders are named.
add_huggingface() { # folder
  local venv
  for venv in .venv-huggingface .venv-oracle; do
    "$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
  done >"$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/huggingface.pth"
}

install_peers() {
  local want="${PEERS_WHEELS[*]} $LLAMA_CPP"
  up_to_date .venv-peers "$want" && return
  make_venv .venv-peers
  add_huggingface .venv-peers
  pip_install .venv-peers "ctranslate2, and what writes llama.cpp's files" "${PEERS_WHEELS[@]}"
  CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=ON" \
    pip_install .venv-peers "llama.cpp, built for this processor" --no-binary llama-cpp-python "$LLAMA_CPP"
  stamp .venv-peers "$want"
}

install_rlhf() {
  local want="${RLHF_WHEELS[*]}"
  up_to_date .venv-rlhf "$want" && return
  make_venv .venv-rlhf
  add_huggingface .venv-rlhf
  pip_install .venv-rlhf "TRL, which trains beside ours" "${RLHF_WHEELS[@]}"
  stamp .venv-rlhf "$want"
}

install_records() {
  local want="${RECORDS_WHEELS[*]}"
  up_to_date .venv-records "$want" && return
  make_venv .venv-records
  pip_install .venv-records "the tools that read the records of runs" "${RECORDS_WHEELS[@]}"
  stamp .venv-records "$want"
}

install_system_packages
install_venv
if [ "$oracle" = yes ]; then
  install_oracle
  install_huggingface
  install_records
fi
if [ "$peers" = yes ]; then
  install_peers
  install_rlhf
fi
