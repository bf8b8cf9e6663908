#!/usr/bin/env bash
# Installs what is missing. usage: tools/setup.sh build|test|cuda
# build, test: the Debian packages that a build (or the tests) need. cuda: nvcc, from PyPI's wheels into build/cuda, where
# none is in PATH or CUDA_HOME.
set -euo pipefail
if [ "${1:-build}" = cuda ]; then
  PATH=$PATH${CUDA_HOME:+:$CUDA_HOME/bin}
  command -v nvcc >/dev/null && exit 0
  cd "$(dirname "$0")/.."
  [ -x build/cuda/bin/nvcc ] && exit 0
  echo "setup: fetching nvcc 13.0 into build/cuda (101 MB)"
  work=build/cuda.part
  rm -rf "$work"
  mkdir -p "$work/wheels"
  python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 \
    -d "$work/wheels" nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 || {
    echo "setup: PyPI could not be reached; put nvcc 13.0 or newer into PATH" >&2
    exit 1
  }
  for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/unpacked"; done
  mv "$work"/unpacked/nvidia/cu13 build/cuda
  chmod +x build/cuda/bin/* build/cuda/nvvm/bin/*
  rm -rf "$work"
  exit 0
fi
packages=(g++ cmake ninja-build mold pkg-config libfmt-dev libsimdjson-dev libcli11-dev libpcre2-dev
          libutf8proc-dev python3 python3-dev python3-pip python3-venv)
[ "${1:-build}" = build ] || packages+=(clang clang-format libclang-rt-14-dev libgtest-dev libgmock-dev)
command -v dpkg-query >/dev/null || {
  echo "setup: this is no Debian; install what corresponds to: ${packages[*]}" >&2
  exit 0
}
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
# A python3 from elsewhere that has pip, venv and its headers serves as well as Debian's.
if python3 -c 'import ensurepip, os, pip, sysconfig, venv
os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' >/dev/null 2>&1; then
  kept=()
  for package in "${missing[@]}"; do [[ $package == python3* ]] || kept+=("$package"); done
  missing=("${kept[@]+"${kept[@]}"}")
fi
[ ${#missing[@]} -gt 0 ] || exit 0
run=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup: needs root or sudo to install: ${missing[*]}" >&2
    exit 1
  }
  run=(sudo)
fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
{ "${run[@]}" apt-get update && "${run[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null || {
  tail -n 20 "$log" >&2
  echo "setup: apt-get could not install the packages above; is the network there?" >&2
  exit 1
}
rm -f "$log"
