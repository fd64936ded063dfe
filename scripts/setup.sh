#!/usr/bin/env bash
# Installs what is missing to build trainc on Debian 12 or later; does nothing when all is there.
#
# usage: setup.sh [--demo|--test|--torch [VERSION]|--bench]
#   --demo   also fetches the text that the demo trains on (into build/demo; nothing is installed for it)
#   --test   also installs what the tests need (MPI, and libraries and an emulator for AArch64 among it), and a Python environment in .venv:
#            with ptxas, libdevice and the headers of cuBLASLt and NCCL (0.6 GB), if no CUDA toolkit is installed
#   --torch  also installs PyTorch and the libraries of models that bench/models takes, in .venv-torch (6 GB); of an earlier VERSION that
#            has a requirements-VERSION.txt there, in .venv-torch-VERSION
#   --bench  also installs what bench/check.py and bench/run.py compile with
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(cmake ninja-build ccache clang-22 lld-22 llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools
  libopenblas-dev libopenblas0-pthread libdnnl-dev pkg-config python3)
test_packages=(clang-format-22 clang-tidy-22 git libclang-rt-22-dev libopenmpi-dev openmpi-bin python3-psutil python3-venv
  qemu-user libc6-dev-arm64-cross libstdc++-12-dev-arm64-cross)
bench_packages=(libomp-22-dev libtcmalloc-minimal4 python3-venv qemu-user)
demo_text=build/demo/text/usr/share/doc/jargon-text/jargon.txt.gz

mode=${1:-}
case $mode in
'' | --demo) ;;
--test) packages+=("${test_packages[@]}") ;;
--torch) packages+=(python3-venv) ;;
--bench) packages+=("${bench_packages[@]}") ;;
*) die "unknown option $mode (usage: setup.sh [--demo|--test|--torch [VERSION]|--bench])" ;;
esac

command -v apt-get >/dev/null || die "needs apt-get: install by hand ${packages[*]} (names of Debian 12)"

as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "must run as root, as there is no sudo: $*"
  fi
}

installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

available() {
  [[ $(apt-cache policy "$1") =~ Candidate:\ [^\(] ]]
}

# Refreshes apt's lists, once, if one of the packages given is not in them.
know_packages() {
  local p
  for p in "$@"; do
    available "$p" && continue
    as_root apt-get update -q
    break
  done
  for p in "$@"; do
    available "$p" || die "package $p is not in the configured apt sources (on Debian 12 the llvm-22 packages come" \
      "from the suite bookworm-security, component main)"
  done
}

install_packages() {
  local missing=() p
  for p in "${packages[@]}"; do
    installed "$p" || missing+=("$p")
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  echo "setup.sh: installing ${missing[*]}"
  know_packages "${missing[@]}"
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}")
  as_root "${apt[@]}" || { # the lists may be older than the archive
    as_root apt-get update -q
    as_root "${apt[@]}"
  }
}

# The Jargon File, public domain, out of its Debian package; unpacked here because minimal systems are often told to
# leave /usr/share/doc out when they install a package.
fetch_demo_text() {
  [[ -f $demo_text ]] && return
  echo "setup.sh: fetching the demo's text (Debian package jargon-text)"
  know_packages jargon-text
  mkdir -p build/demo
  local folder
  folder=$(mktemp -d)
  (
    cd "$folder"
    download=(apt-get download -q -o APT::Sandbox::User=root jargon-text)
    "${download[@]}" || { # the lists may be older than the archive
      as_root apt-get update -q
      "${download[@]}"
    }
  )
  dpkg-deb -x "$folder"/jargon-text_*.deb build/demo/text
  rm -r "$folder"
}

# make_venv FOLDER REQUIREMENT...: a Python environment that has these and nothing older.
make_venv() {
  local folder=$1 wanted="${*:2}"
  [[ -f $folder/installed.txt && $wanted == "$(cat "$folder/installed.txt")" ]] && return
  echo "setup.sh: creating $folder"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "the tests need Python 3.11 or later"
  [[ -x $folder/bin/pip ]] || python3 -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check "${@:2}"
  echo "$wanted" >"$folder/installed.txt"
}

install_packages
case $mode in
--demo) fetch_demo_text ;;
--test)
  mapfile -t wanted <scripts/requirements-test.txt
  [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/ptxas ]] || mapfile -t -O ${#wanted[@]} wanted <scripts/requirements-cuda.txt
  make_venv .venv "${wanted[@]}"
  ;;
--torch)
  suffix=${2:+-$2}
  mapfile -t wanted <"bench/models/requirements$suffix.txt"
  make_venv ".venv-torch$suffix" "${wanted[@]}"
  ;;
esac
