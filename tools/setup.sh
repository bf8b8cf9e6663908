#!/usr/bin/env bash
# Installs the Debian packages that a build (or the tests) need and that are missing. usage: tools/setup.sh build|test
set -euo pipefail
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
