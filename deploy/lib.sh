# shellcheck shell=bash
# What the scripts share. To be sourced, from the project's root.

# As many compilers as processors: Ninja's two more take their caches from one another. On two
# processors, two compilers took 0.80 to 0.94 of the time of four (ten batches, three rounds in turns).
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

# say WORDS...: a line of progress with the seconds since the script began.
say() { printf '[%3ds] %s\n' "$SECONDS" "$*"; }

# build_programs SETS: server and client; where nobody has built anything, with the least that this
# takes (preset run). SETS says which instruction sets have kernels: native does not take away what is
# there, all adds what is not (cmake/InstructionSets.cmake).
build_programs() {
  if [[ ! -f build/release/build.ninja ]]; then
    cmake --preset run -DATTENTION_INSTRUCTION_SETS="$1"
  elif [[ $1 == all ]]; then
    cmake build/release -DATTENTION_INSTRUCTION_SETS=all
  fi
  cmake --build --preset run
}

# build_release TARGET...: configures once and builds what is out of date. Targets
# are Ninja's: all, or the path of a file below build/release.
build_release() {
  if [[ ! -f build/release/build.ninja ]]; then
    cmake --preset release
  elif grep -q '^ATTENTION_BUILD_TESTS:BOOL=OFF' build/release/CMakeCache.txt; then
    # After build_programs. What it compiled stays: preset release would compile it anew.
    cmake build/release -DATTENTION_BUILD_TESTS=ON -DATTENTION_BUILD_BENCHMARKS=ON \
      -DATTENTION_INSTRUCTION_SETS=all
  fi
  cmake --build --preset release --target "$@"
}

# start_server: starts the release server on a free loopback port and waits until it
# is healthy. Sets server_pid and server_address.
start_server() {
  local log=build/release/server.log
  : >"$log"  # the last server's line must not be read
  # All that its first line depends on, against whatever the environment says.
  build/release/bin/attention-server --grpc-address 127.0.0.1 --grpc-port 0 --http-port 0 \
    --log-level info --log-format text >>"$log" 2>&1 &
  server_pid=$!
  server_address=
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    server_address=$(grep -m 1 -oE 'listening on 127\.0\.0\.1:[0-9]+' "$log" | cut -d ' ' -f 3 || true)
    [[ -z $server_address ]] || break
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.1
  done
  if [[ -z $server_address ]] ||
    ! build/release/bin/attention-client --server "$server_address" health; then
    echo "the server did not become healthy; its log:" >&2
    cat "$log" >&2
    return 1
  fi
}

# stop_server: ends the server that start_server started, if it still runs, and
# returns its exit code. Safe to call twice.
stop_server() {
  [[ -n ${server_pid:-} ]] || return 0
  local pid=$server_pid
  server_pid=
  kill "$pid" 2>/dev/null || true
  wait "$pid"
}

# pythons MINOR: the Pythons 3.MINOR and newer that run here, of the PATH and of pyenv; a path a line,
# the oldest first.
pythons() {
  local minor found path=$PATH
  if command -v pyenv >/dev/null; then
    path+=$(printf ':%s' "$(pyenv root)"/versions/*/bin)
  fi
  for ((minor = $1; minor < 30; ++minor)); do
    # Where pyenv has not chosen a version, its shim is in the PATH, and fails.
    while read -r found; do
      if "$found" --version >/dev/null 2>&1; then
        echo "$found"
        break
      fi
    done < <(PATH=$path type -ap "python3.$minor")
  done
}

# python_packages VENV REQUIREMENTS [PIP ARGUMENT...]: a virtual environment of python3, or of
# $python_of_packages, with the packages that are listed, installed once.
python_packages() {
  local venv=$1 pinned=$2
  shift 2
  # A copy of the requirements stands for an environment that was finished.
  if ! cmp -s "$pinned" "$venv/installed.txt"; then
    echo "python: packages from PyPI into $venv"
    "${python_of_packages:-python3}" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" -r "$pinned"
    cp "$pinned" "$venv/installed.txt"
  fi
}

# python_source PACKAGE FOLDER: the source of a Python package, into a new folder. Without what pip
# leaves in it of an earlier build (pip install ./client/python): setuptools would take modules from there.
python_source() {
  cp -rL "$1" "$2"
  rm -rf "$2"/build "$2"/src/*.egg-info
}

# python_environment FOLDER REQUIREMENTS [PIP ARGUMENT...]: python_packages in FOLDER/venv, and the
# gRPC stubs of both APIs in FOLDER/stubs.
python_environment() {
  local folder=$1
  shift
  python_packages "$folder/venv" "$@"
  mkdir -p "$folder/stubs"
  "$folder/venv/bin/python" -m grpc_tools.protoc -I proto --python_out="$folder/stubs" \
    --grpc_python_out="$folder/stubs" attention/v1/attention.proto \
    inference/grpc_service.proto inference/model_config.proto
}
