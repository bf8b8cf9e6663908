"""The wheel alone: in an empty environment, with its own libraries, it runs the demo model, in Python and by the command."""
import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

from conftest import LLAMA, TESTS

WHEEL = os.environ.get("FOREBAY_WHEEL")
DEMO_MODEL = os.environ.get("FOREBAY_DEMO_MODEL", os.path.join(os.path.dirname(TESTS), "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
# What every Linux of the wheel's tag has; all else must be the wheel's own.
SYSTEM = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|ld-linux-x86-64|libpthread|libdl|librt|libutil|libz|libexpat|libpython3\.\d+)(-[\d.]+)?\.so")


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    if not WHEEL:
        pytest.skip("no wheel is named by FOREBAY_WHEEL (tools/test_python.sh names it)")
    folder = str(tmp_path_factory.mktemp("wheel") / "venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [os.path.join(sys.base_prefix, "bin", "python3"), "-m", "pip", "--python", os.path.join(folder, "bin", "python"), "install", "-q", "--no-index", "--no-deps", WHEEL]
    subprocess.run(pip, check=True)
    return folder


def foreign(paths, folder):
    """Those of the libraries that are neither the wheel's nor every system's. Python's own modules are where it is."""
    return sorted({path for path in paths
                   if ".so" in path and not path.startswith(folder) and not SYSTEM.match(os.path.basename(path)) and "/lib-dynload/" not in path})


def test_it_brings_its_libraries(empty):
    code = "import forebay; print(open('/proc/self/maps').read())"
    maps = subprocess.run([empty + "/bin/python", "-I", "-c", code], cwd=empty, capture_output=True, text=True, check=True).stdout
    mapped = {line.split(None, 5)[5] for line in maps.splitlines() if len(line.split(None, 5)) == 6}
    assert foreign(mapped, empty) == []
    for name in ("libfmt", "libsimdjson", "libpcre2-8", "libutf8proc"):
        assert any(os.path.basename(path).startswith(name) and path.startswith(empty) for path in mapped), name
    program = subprocess.run(["find", empty, "-path", "*forebay.scripts/forebay"], capture_output=True, text=True, check=True).stdout.strip()
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"=> (\S+)", listed)
    assert len(found) > 5 and "not found" not in listed
    assert foreign([os.path.realpath(path) if path.startswith(empty) else path for path in found], os.path.realpath(empty)) == []


def test_it_speaks_with_nobody(empty, tmp_path):
    """No program or library of the wheel can open a connection, and what Python does opens none."""
    find = ["find", empty, "-path", "*forebay*", "(", "-name", "*.so*", "-o", "-path", "*.scripts/forebay", ")"]
    objects = subprocess.run(find, capture_output=True, text=True, check=True).stdout.split()
    assert len(objects) >= 6
    wanted = subprocess.run(["nm", "-D", "--undefined-only", *objects], capture_output=True, text=True, check=True).stdout
    assert " open@" in wanted
    assert re.findall(r" (socket|connect|sendto|sendmsg|getaddrinfo|gethostbyname\w*|res_\w*query)(?:@|$)", wanted, re.MULTILINE) == []
    (tmp_path / "in.jsonl").write_text('{"prompt": [5, 6], "max_tokens": 2}\n')
    code = f"""
        import sys
        sys.addaudithook(lambda event, _: event.startswith(("socket.", "urllib.", "http.")) and print(event))
        import forebay
        forebay.LLM({LLAMA!r}, memory="64MiB").generate(["the river"], use_tqdm=False)
        forebay.run_batch({str(tmp_path / "in.jsonl")!r}, {str(tmp_path / "out.jsonl")!r}, {LLAMA!r}, memory="64MiB", use_tqdm=False)
        """
    done = subprocess.run([empty + "/bin/python", "-I", "-c", textwrap.dedent(code)], cwd=empty, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_it_has_its_types(empty):
    code = "import forebay, os; print(*os.listdir(os.path.dirname(forebay.__file__)))"
    names = subprocess.run([empty + "/bin/python", "-I", "-c", code], cwd=empty, capture_output=True, text=True, check=True).stdout.split()
    assert {"py.typed", "_forebay.pyi", "llm.py"} <= set(names)


def test_it_runs_the_demo_model(empty, tmp_path):
    if not os.path.exists(DEMO_MODEL):
        pytest.skip(f"no demo model at {DEMO_MODEL}")
    code = f"""
        import sys
        from forebay import LLM, SamplingParams
        llm = LLM({DEMO_MODEL!r}, memory="1GiB")
        print(llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)[0].outputs[0].text)
        assert "numpy" not in sys.modules
        """
    said = subprocess.run([empty + "/bin/python", "-I", "-c", textwrap.dedent(code)], cwd=empty, capture_output=True, text=True, check=True).stdout
    assert "Paris" in said
    request = {"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    (tmp_path / "in.jsonl").write_text(json.dumps(request) + "\n")
    command = [empty + "/bin/forebay", "run", "-m", DEMO_MODEL, "-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), "--quiet",
               "--memory", "1GiB"]
    subprocess.run(command, check=True)
    body = json.loads((tmp_path / "out.jsonl").read_text())["response"]["body"]
    assert body["choices"][0]["text"] == said.removesuffix("\n")
