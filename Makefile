# Everything runs in .venv, which the first target makes. System packages needed: make, python3-venv, g++;
# chromium for the tests of the report page.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin/

.PHONY: browser demo test test-slow test-kernels verify-results check format clean

demo: $(VENV)/ready
	$(RUN)python examples/demo.py

test: check browser
	$(RUN)pytest -m "not slow"

test-slow: $(VENV)/ready browser
	$(RUN)pytest -m slow

# What the CUDA kernels compute, by Triton's interpreter, which lies apart: PyTorch for CPUs need not find it.
TRITON := .cache/triton
test-kernels: $(VENV)/ready $(TRITON)/ready
	PYTHONPATH=$(TRITON) $(RUN)pytest tests/kernels

$(TRITON)/ready:
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps --target $(TRITON) triton==3.6.0
	touch $@

# The page's tests need Chromium: found, or installed where that may be done; without it they are skipped and say so.
browser:
	@command -v "$${SMOOTHCERT_BROWSER:-chromium}" >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Chromium for the page's tests" && \
	export DEBIAN_FRONTEND=noninteractive && apt-get update -qq -o Acquire::Retries=3 && \
	apt-get install -y -qq -o Acquire::Retries=3 chromium >/dev/null; } || \
	echo "No Chromium: the page's tests are skipped unless another browser is found. SMOOTHCERT_BROWSER names one."

verify-results: $(VENV)/ready
	$(RUN)python scripts/results.py verify

check: $(VENV)/ready
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: $(VENV)/ready
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

$(VENV)/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps imagecorruptions==1.1.2  # its photographs of frost
	$(RUN)pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: docs
docs: $(VENV)/docs-ready
	NO_MKDOCS_2_WARNING=1 $(RUN)mkdocs build --strict
	@echo "The site is in site/; open site/index.html."

test-slow: $(VENV)/docs-ready

$(VENV)/docs-ready: $(VENV)/ready requirements-docs.txt
	$(RUN)pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
