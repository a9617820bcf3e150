#!/usr/bin/env bash
# What asks for a GPU, in slices of ten minutes: run it again until every stage is done (docs/guides/gpu.md).
#
#   benchmarks/gpu.sh                          # one slice on the GPU
#   benchmarks/gpu.sh --device cpu --slice 200 # try it here, at smoke scale
#   benchmarks/gpu.sh --help
#
# PYTHON: the interpreter (python3). WHEELS: a folder of wheels to install first, where there is no network.
set -euo pipefail
since=$(date +%s)
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${WHEELS:-}" ]; then
    site=$(mktemp -d)
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
    export PYTHONPATH="$PYTHONPATH:$site"
fi
exec "$python" benchmarks/gpu_slices.py --since "$since" "$@"
