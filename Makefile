# Everything runs in .venv, which the first target creates. Required system packages: make, python3-venv, g++, and
# chromium for the tests of the report page. CONTRIBUTING.md describes the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin/
# One thread per test process: the processes share the cores. loadscope keeps a module's tests in one process, so that
# its fixtures are built once; worksteal balances tests of which one can take longer than many others.
PROCESSES ?= 2
EXAMPLES := .cache/examples
PYTEST := OMP_NUM_THREADS=1 $(RUN)pytest -n $(PROCESSES)

.PHONY: browser demo test test-slow test-kernels verify-results check check-scripts format docs dist clean

demo: $(VENV)/ready
	$(RUN)python examples/demo.py

test: check browser
	$(PYTEST) --dist loadscope -m "not slow"

test-slow: $(VENV)/docs-ready $(EXAMPLES)/ready browser
	$(PYTEST) --dist worksteal -m slow

# Packages of single examples, installed outside .venv, so that no other target sees them.
$(EXAMPLES)/ready: $(VENV)/ready examples/requirements.txt
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(EXAMPLES) -r examples/requirements.txt
	touch $@

# Runs the Triton kernels in Triton's interpreter, and compiles the CUDA kernels. Triton and NVRTC are installed outside
# .venv, so that no other target sees them.
COMPILERS := .cache/compilers
test-kernels: $(VENV)/ready $(COMPILERS)/ready
	PYTHONPATH=$(COMPILERS) $(PYTEST) --dist worksteal tests/kernels

$(COMPILERS)/ready:
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILERS) triton==3.6.0 \
	nvidia-cuda-nvrtc==13.0.88
	touch $@

# The tests of the report page need Chromium. Root on Debian installs it; without it these tests are skipped.
browser:
	@command -v "$${SMOOTHCERT_BROWSER:-chromium}" >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Chromium for the tests of the report page" && \
	export DEBIAN_FRONTEND=noninteractive && apt-get update -qq -o Acquire::Retries=3 && \
	apt-get install -y -qq -o Acquire::Retries=3 chromium >/dev/null; } || \
	echo "No Chromium: the tests of the report page are skipped. SMOOTHCERT_BROWSER names another browser."

verify-results: $(VENV)/ready
	$(RUN)python scripts/results.py verify

check: $(VENV)/ready check-scripts
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: $(VENV)/ready
	$(RUN)ruff check --fix .
	$(RUN)ruff format .
	[ ! -x $(BIOME) ] || $(BIOME) check --write

# Biome checks and formats the scripts and styles of the HTML pages. Without npm they are not checked.
BIOME_FOLDER := .cache/biome-2.6.7
BIOME := $(BIOME_FOLDER)/node_modules/.bin/biome
check-scripts:
	@[ -x $(BIOME) ] || { command -v npm >/dev/null && \
	npm install --silent --no-audit --no-fund --prefix $(BIOME_FOLDER) @biomejs/biome@2.6.7 >/dev/null; } || true
	@if [ -x $(BIOME) ]; then $(BIOME) check --error-on-warnings; \
	else echo "No npm: the scripts of the HTML pages are not checked."; fi

$(VENV)/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps imagecorruptions==1.1.2  # frost images
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

docs: $(VENV)/docs-ready
	NO_MKDOCS_2_WARNING=1 $(RUN)mkdocs build --strict
	@echo "The site is in site/; open site/index.html."

$(VENV)/docs-ready: $(VENV)/ready requirements-docs.txt
	$(RUN)pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	touch $@

# Builds the sdist, and from it the wheel. The checks compare the wheel with one built from the checkout, and run it in a
# new environment. Everything but the result is outside .venv, in .cache/dist.
DIST := .cache/dist
dist: $(DIST)/tools/ready
	rm -rf dist $(DIST)/from-checkout
	$(DIST)/tools/bin/python -m build --outdir dist
	$(DIST)/tools/bin/python -m build --wheel --outdir $(DIST)/from-checkout
	$(DIST)/tools/bin/twine check --strict dist/*
	$(PYTHON) scripts/check_wheel.py dist/*.whl --same-as $(DIST)/from-checkout/*.whl --environment $(DIST)/clean

$(DIST)/tools/ready: requirements-dist.txt
	$(PYTHON) -m venv --clear $(DIST)/tools
	$(DIST)/tools/bin/pip install --quiet --disable-pip-version-check -r requirements-dist.txt
	touch $@

clean:
	rm -rf $(VENV) dist $(DIST) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
