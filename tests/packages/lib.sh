# shellcheck shell=bash
# What the scripts in the containers share.

# must WORDS COMMAND...: ends the test where the command fails.
must() {
  local words=$1
  shift
  if "$@"; then echo "  $words"; else
    echo "not so: $words ($*)" >&2
    exit 1
  fi
}

# in_time COMMAND...: tries until it succeeds, for 30 s at most.
in_time() {
  local tries
  for ((tries = 0; tries < 150; ++tries)); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.2
  done
  return 1
}

# attends CLIENT ADDRESS: whether the server there computes what PyTorch computes.
attends() {
  "$1" --server "$2" attend --input /tests/data/pytorch.safetensors --case multi_head/bias \
    --tolerance 1e-5 >/dev/null
}
