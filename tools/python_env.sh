#!/usr/bin/env bash
# Leaves an environment of Python in build/NAME with what the files list, from PyPI; fails where PyPI cannot be reached. Waits for
# another call that is at it. usage: tools/python_env.sh NAME REQUIREMENTS...
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/$1
shift
mkdir -p build
exec 9>"$venv.lock" </dev/null
flock 9
wanted=$(python3 --version; cat "$@")
[ "$(cat "$venv/wanted" 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf "$venv"
# The pip of python3 serves all, and what is imported is compiled then: to install pip and to compile all takes a minute of a core.
python3 -m venv --without-pip "$venv"
requirements=()
for file in "$@"; do requirements+=(-r "$file"); done
python3 -m pip --python "$venv/bin/python" install --quiet --no-input --disable-pip-version-check --no-compile "${requirements[@]}" 2>"$venv.log" || {
  tail -n 3 "$venv.log" >&2
  echo "python_env: pip could not install what $* lists; is the network there?" >&2
  exit 1
}
echo "$wanted" >"$venv/wanted"
