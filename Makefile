# Each target works alone on a machine with only Python 3.11, 3.12 or 3.13 and its venv module.
#   make install    .venv with everything pinned        make bench    how fast the engine is
#   make demo       place a real model on two cores     make zoo      export what is missing in the zoo
#   make test       every check that CI runs            make tables   the papers' tables with every method, in hours
#   make notebooks  run the notebooks and save what they show; needs Chrome or Chromium
#   make docs       pages of the API in build/docs      make wheel-test   the wheel in an environment of its own
#   make clean      remove what the other targets made
#   make bench-backend  all cases of ONNX's own test suite, in minutes
#   make bench-interrupted  commands that are killed and started again, in a quarter of an hour
#   make bench-hostile  200,000 damaged and harmful files, in half an hour
#   make bench-scale  graphs of 1,000 to 200,000 ops, in half an hour      make bench-ray  two hosts of Ray against one, in two minutes
# Another interpreter: make install PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
PACKAGES := .venv/.packages
STAMP := .venv/.installed
MODEL := build/nasnet_mobile.onnx
OPENVINO := build/openvino/.installed

# Without stored bytecode, every process that imports torch compiles it anew, which takes three seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test rules types layers compiled docs wheel-test bench bench-backend bench-hostile bench-interrupted bench-scale bench-ray zoo tables notebooks clean

install: $(STAMP)
	@echo "ready: $$($(BIN)/python --version) in .venv; next: make demo, or source .venv/bin/activate and gnnplace --help"

# What pip compiles ahead costs more than what the first import compiles.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Installs with uv in a quarter of pip's time; with pip, which reads other configuration, where uv cannot.
INSTALL := install() { $(BIN)/python -m uv pip install --quiet --python $(BIN)/python "$$@" || $(PIP) "$$@"; }; install

# Machines without GPU often have pip configured to find a smaller torch, so pip installs that one.
$(PACKAGES): pyproject.toml tests/constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(v not in ((3, 11), (3, 12), (3, 13)) and f"{sys.executable} is Python {v[0]}.{v[1]}; gnnplace needs 3.11, 3.12 or 3.13: make install PYTHON=python3.12")'
	@echo "installing gnnplace and the versions of tests/constraints.txt into .venv (several minutes the first time)"
	$(PYTHON) -m venv .venv
	@$(PIP) --constraint tests/constraints.txt uv || echo "uv cannot be had here, so pip installs everything"
	$(PIP) --constraint tests/constraints.txt --no-deps torch
	@$(INSTALL) --constraint tests/constraints.txt --editable '.[dev,docs,fuzz,notebooks,optimal,partition,pictures,ray,train,zoo]'
	@find gnnplace -name '*.nb[ic]' -delete # functions that numba compiled from an earlier version
	@touch $@

$(STAMP): $(PACKAGES)
	@echo "checking the installation; this compiles the simulator, once"
	$(BIN)/gnnplace doctor --quiet
	@touch $@

demo: $(MODEL)
	@echo "placing $(MODEL) on two CPU cores, each op on one of them or on both; rewards are measured runtimes"
	$(BIN)/gnnplace place $(MODEL) --devices 'cpu:0,cpu:1,cpu:0-1[spinning=1]' --measure --force --evaluations 60 --out build/demo

$(MODEL): models_zoo/networks/branched/nasnet.py | $(STAMP)
	@echo "exporting $@ from PyTorch: NASNet-A (mobile) for one image, with random weights"
	$(BIN)/gnnplace zoo nasnet_mobile --set batch=1 --out $@ --quiet

# Shares its files with onnxruntime, so it lies beside it; tests/running/test_openvino.py finds it there.
$(OPENVINO): tests/constraints.txt | $(PACKAGES)
	@echo "unpacking onnxruntime-openvino into build/openvino: the second provider that devices are tested with"
	@rm -rf $(@D)
	@$(INSTALL) --no-deps --only-binary :all: --target $(@D) --constraint tests/constraints.txt onnxruntime-openvino \
		|| echo "it cannot be had here, so its tests are skipped"
	@mkdir -p $(@D) && touch $@

# A failure ends the target before the other tests. COMPILING are tests that compile everything: three at a time would each compile it.
COMPILING := gnnplace tests/parity tests/sim tests/planners/test_planner_contract.py
test: $(PACKAGES)
	@echo "1/3 checks of the source, beside doctor, docstring examples and tests that compile everything"
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target rules types $(STAMP) compiled $(OPENVINO) layers
	@echo "2/3 pytest: the other tests, three at a time on two cores, as many wait for processes"
	$(BIN)/python -m pytest models_zoo tests $(addprefix --ignore ,$(COMPILING) tests/models_zoo) --numprocesses 3
	@echo "3/3 pytest: recipes of the zoo, exported and compared, two at a time"
	$(BIN)/python -m pytest tests/models_zoo --numprocesses 2

compiled: $(STAMP)
	@echo "pytest: docstring examples, and tests that compile everything"
	$(BIN)/python -m pytest $(COMPILING)

rules: $(PACKAGES)
	@echo "ruff: rules and format"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(PACKAGES)
	@echo "mypy: types"
	$(BIN)/mypy

layers: $(PACKAGES)
	@echo "import-linter: layers, and the homes of heavy libraries"
	$(BIN)/lint-imports

docs: $(STAMP)
	@echo "writing a page for every module into build/docs"
	$(BIN)/python -W ignore docs/api.py build/docs

# Away from the repository nothing but the wheel can be imported; WHEEL_TESTS=tests runs all but those of the notebooks, which stay in the repository.
WHEEL_TESTS ?= $(addprefix tests/,api cli contracts cost devices distributed graph onnx_io policy report sim)
wheel-test:
	@rm -rf build/wheel && mkdir -p build/wheel
	@echo "1/4 building the wheel"
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	@ls -l build/wheel/*.whl
	@echo "2/4 installing it into an empty environment, with what its tests need"
	build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint tests/constraints.txt "$$(echo $(CURDIR)/build/wheel/*.whl)[dev,optimal,partition,ray,train,zoo]"
	@away=$$(mktemp -d) && trap 'rm -rf "$$away"' EXIT && cp -r tests pyproject.toml README.md "$$away" && cd "$$away" \
		&& echo "3/4 the README's session" && $(CURDIR)/build/wheel/venv/bin/python tests/readme_session.py README.md \
		&& echo "4/4 the tests, in $$away" && $(CURDIR)/build/wheel/venv/bin/python -m pytest --quiet --numprocesses 2 --ignore tests/notebooks $(WHEEL_TESTS)

bench: $(STAMP)
	@echo "measuring nanoseconds per op of the simulator"
	$(BIN)/gnnplace bench engine

bench-backend: $(STAMP)
	@echo "running every case of ONNX's test suite for backends, plain and cut over two cores"
	$(BIN)/python -m tests.robustness backend --jobs 2 --out notebooks/results/bench-backend.json

bench-hostile: $(STAMP)
	@echo "reading 200,000 damaged and harmful files of every kind; started again, it goes on where it was stopped"
	$(BIN)/python -m tests.robustness hostile --jobs 2 --rows chance,guided --out notebooks/results/bench-hostile.json

zoo: $(STAMP)
	@echo "exporting what the zoo's manifest lacks, at published sizes; everything anew takes hours and 16 GiB"
	$(BIN)/python -m models_zoo.networks.publish --out notebooks/results/zoo.json

tables: $(STAMP)
	@echo "every method on every row of the papers' tables; started again, it goes on where it was stopped"
	$(BIN)/gnnplace bench seeds --jobs 2 --out notebooks/results/bench-seeds.json
	$(BIN)/gnnplace bench spotlight --jobs 2 --out notebooks/results/bench-spotlight.json
	$(BIN)/gnnplace report notebooks/results/bench-seeds.json
	$(BIN)/gnnplace report notebooks/results/bench-spotlight.json

notebooks: $(STAMP)
	@echo "running all notebooks and saving them with what they show"
	$(BIN)/python notebooks/execute.py

bench-interrupted: $(STAMP)
	@echo "killing commands at random moments, in half an hour; started again, it goes on where it was stopped"
	$(BIN)/python -m tests.robustness interrupted --jobs 2 --out notebooks/results/bench-interrupted.json

bench-scale: $(STAMP)
	@echo "placing graphs of 1,000 to 200,000 ops, in half an hour of an otherwise idle machine; started again, it goes on where it was stopped"
	$(BIN)/gnnplace bench scale --out notebooks/results/bench-scale.json

bench-ray: $(STAMP)
	@echo "two hosts of Ray on this machine against one, in two minutes of an otherwise idle machine"
	$(BIN)/gnnplace bench ray --out notebooks/results/bench-ray.json

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
