# shellcheck shell=bash
# What compare and roofline share. To be sourced, from the project's root.
# shellcheck source=deploy/lib.sh
source deploy/lib.sh

venv=build/benchmarks/venv
pinned=benchmarks/requirements.txt
benchmark=build/release/bin/attention-benchmark

# run_python MODULE ARGUMENTS...: makes the virtual environment, once, and the
# benchmark, and runs the module, which is told where the benchmark is.
run_python() {
  # Answered at once, without packages.
  if [[ " $* " =~ \ (-h|--help|--list)\  ]]; then
    PYTHONPATH=benchmarks exec python3 -m "$@" --binary "$benchmark"
  fi
  # A copy of the requirements stands for an environment that was finished.
  if ! cmp -s "$pinned" "$venv/installed.txt"; then
    say "packages from PyPI into $venv: some 6 GB, once, some minutes" >&2
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$pinned"
    cp "$pinned" "$venv/installed.txt"
  fi
  build_release bin/attention-benchmark >&2
  # Freed memory stays with the process: else every call of a peer that allocates
  # its results pays for fresh pages, and is slower than it has to be.
  export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=67108864
  export TORCHINDUCTOR_CACHE_DIR=$PWD/build/benchmarks/torchinductor
  PYTHONPATH=benchmarks exec "$venv/bin/python" -m "$@" --binary "$benchmark"
}
