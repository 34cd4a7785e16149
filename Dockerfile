# syntax=docker/dockerfile:1
# The images of the chart. Bases are pinned by version; pin them by digest too where you build (docs/deploy.md, "Images").
#   docker build --target front       -t REGISTRY/outrider-front:0.1.0 .
#   docker build --target engine-cuda -t REGISTRY/outrider-engine:0.1.0-vllm0.26.0 .
#   docker build --target engine-cpu  -t REGISTRY/outrider-engine:0.1.0-cpu .
#   docker build --target bench       -t REGISTRY/outrider-bench:0.1.0 .          (Argo CD's gate)
ARG PYTHON_IMAGE=python:3.11.11-slim-bookworm
ARG VLLM_IMAGE=vllm/vllm-openai:v0.26.0

# Both distributions as wheels, built once.
FROM ${PYTHON_IMAGE} AS wheels
WORKDIR /source
COPY requirements/deploy.txt requirements/deploy.txt
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement requirements/deploy.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
COPY plugin plugin
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . ./plugin

# The front: the core alone, no torch, no vLLM.
FROM ${PYTHON_IMAGE} AS front
COPY requirements/core.txt /tmp/core.txt
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/core.txt && rm /tmp/core.txt
RUN --mount=from=wheels,source=/wheels,target=/wheels pip install --no-cache-dir --no-deps /wheels/outrider-*.whl
RUN useradd --uid 10001 --no-create-home outrider
USER 10001:10001
EXPOSE 8000
ENTRYPOINT []
CMD ["outrider", "--help"]

# A GPU: the stock image of vLLM, and our two distributions. What the core needs is there already or is installed beside it.
FROM ${VLLM_IMAGE} AS engine-cuda
RUN --mount=from=wheels,source=/wheels,target=/wheels python3 -m pip install --no-cache-dir /wheels/outrider-*.whl /wheels/outrider_vllm-*.whl
RUN useradd --uid 10001 --no-create-home outrider
USER 10001:10001
EXPOSE 8000
ENTRYPOINT []
CMD ["outrider", "--help"]

# No GPU: the locked CPU build (a third party's build of the official source), as `make engine` installs it.
FROM ${PYTHON_IMAGE} AS engine-cpu
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ libc6-dev libnuma1 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/source
COPY . .
RUN scripts/install.sh /opt/outrider engine && /opt/outrider/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation . ./plugin
ENV PATH=/opt/outrider/bin:$PATH
RUN useradd --uid 10001 --no-create-home outrider
USER 10001:10001
WORKDIR /
EXPOSE 8000
ENTRYPOINT []
CMD ["outrider", "--help"]

# The gate after a sync: the engine's image, the load generator in an environment of its own, and what reports need.
FROM engine-cuda AS bench
USER 0
COPY scripts/install_bench.sh scripts/installing.sh /opt/source/scripts/
COPY requirements/bench.txt /opt/source/requirements/bench.txt
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/* \
 && /opt/source/scripts/install_bench.sh /opt/aiperf
RUN --mount=from=wheels,source=/wheels,target=/wheels python3 -m pip install --no-cache-dir "$(ls /wheels/outrider-*.whl)[bench]"
ENV OUTRIDER_AIPERF=/opt/aiperf/bin/aiperf
USER 10001:10001
