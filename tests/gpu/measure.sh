# shellcheck shell=bash disable=SC2154  # variables are tests/gpu/run's
# The steps benchmark and profile, and what becomes of all steps' rows. Sourced by tests/gpu/run.

# limited SECONDS COMMAND...: no longer than that, nor than the step has left.
limited() {
  local most=$1 left
  shift
  left=$(seconds_left)
  ((left > 0)) || return 124
  timeout --kill-after=5 "$((left < most ? left : most))" "$@"
}

# The cases, those that tell most first; the first of them where --cases says how many.
case_names() { "$bin/attention-gpu-benchmark" "${trial[@]}" --list | head -n "${cases:--0}"; }

# Rows of limits.tsv, and of benchmark.tsv for each case; then PyTorch's of peers.tsv.
benchmark() {
  local -a names
  local n code program=("$bin/attention-gpu-benchmark" "${trial[@]}")
  limited 90 "${program[@]}" --limits >"$out/limits.tsv" 2>>"$log" ||
    row "limits" "" FAILED 0 "exit code $?"
  mapfile -t names < <(case_names)
  # PyTorch has its half of the time.
  step_ends=$((SECONDS + (ends - SECONDS) / 2))
  for n in "${!names[@]}"; do
    if (($(seconds_left) < 5)); then
      row "$((${#names[@]} - n)) more cases" "" "not run" 0 "the step's time was over"
      break
    fi
    code=0
    limited 60 "${program[@]}" --case "$n" >"$work/row" 2>>"$log" || code=$?
    if [[ -s $work/row ]]; then
      cat "$work/row" >>"$rows"
      [[ $code == 0 ]] || row "${names[$n]}" "" FAILED 0 "exit code $code"
    else
      row "${names[$n]}" "" FAILED 0 "exit code $code"
    fi
  done
  # shellcheck disable=SC2034  # seconds_left reads it
  step_ends=$ends
  peers
}

# As often as it crashes, from the case after.
peers() {
  local done_before=-1 done_now=0 code=1
  : >"$out/peers.tsv"
  while ((code != 0 && done_now != done_before && $(seconds_left) > 20)); do
    done_before=$done_now code=0
    limited 600 "${PYTHON:-python3}" "$here/torch_peer.py" "$rows" "$out/peers.tsv" \
      "$(seconds_left)" >>"$log" 2>&1 || code=$?
    done_now=$(wc -l <"$out/peers.tsv")
  done
  ((code == 0)) || printf 'PyTorch\tended with %s: %s\n' "$code" "$(tail -n 1 "$log")" >>"$out/peers.tsv"
}

# Sections of Nsight Compute, which stay when metrics get other names.
profile() {
  local -a names sections=(SpeedOfLight LaunchStats Occupancy ComputeWorkloadAnalysis
    MemoryWorkloadAnalysis WarpStateStats)
  local n name
  if ! command -v ncu >>"$log"; then
    row profile all "not run" 0 "ncu is not in PATH or the toolkit's bin"
    return
  fi
  mapfile -t names < <(case_names)
  for n in "${!names[@]}"; do
    name=${names[$n]}
    if (($(seconds_left) < 10)); then
      row profile "$((${#names[@]} - n)) more cases" "not run" 0 "the step's time was over"
      break
    fi
    # The longest kernels are what counts; others have names of other libraries. Those made of
    # CUTLASS have its name.
    if ! limited 60 ncu --csv --page details "${sections[@]/#/--section=}" \
      --kernel-name 'regex:^(Kernel|device_kernel)$' --launch-count 3 \
      "$bin/attention-gpu-benchmark" "${trial[@]}" --case "$n" --once >"$work/profile.csv" 2>&1; then
      cat "$work/profile.csv" >>"$log"
      row profile "$name" FAILED 0 "$(tail -n 1 "$work/profile.csv")"
      continue
    fi
    cat "$work/profile.csv" >>"$log"
    profile_rows "$name" <"$work/profile.csv" >>"$rows"
  done
}

# What ncu has printed, to a row for each launch: case, kernel, and what was asked for.
profile_rows() {
  awk -v name="$1" '
    !/^"/ { next }
    { gsub(/^"|"$/, ""); count = split($0, field, "\",\"") }
    !header { for (i = 1; i <= count; ++i) at[field[i]] = i; header = 1; next }
    {
      launch = field[at["ID"]]
      if (!(launch in kernel)) order[++launches] = launch
      kernel[launch] = field[at["Kernel Name"]]
      metric[launch, field[at["Metric Name"]]] = field[at["Metric Value"]]
    }
    function of(launch, what) { return (launch, what) in metric ? metric[launch, what] : "-" }
    END {
      for (i = 1; i <= launches; ++i) {
        launch = order[i]
        short = kernel[launch]
        sub(/^.*cuda::/, "", short)
        printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, substr(short, 1, 70),
          of(launch, "Duration"), of(launch, "Compute (SM) Throughput"),
          of(launch, "DRAM Throughput"), of(launch, "Executed Ipc Active"),
          of(launch, "Registers Per Thread"), of(launch, "Achieved Occupancy")
      }
    }'
}

# Counts by suite, the instances one by one, and every failure.
table_of_tests() {
  printf '\n| %s | outcome | ms |\n|---|---|---|\n' "kernel instance"
  awk -F '\t' '$2 ~ /InstanceTest/ {
    sub(/^.*\//, "", $2); printf "| %s | %s | %s |\n", $2, $3, $4 }' "$rows"
  counts_by 2
  failures
}

# What it found, word by word.
table_of_start() {
  printf '\n| at the start | outcome | ms | what it says |\n|---|---|---|---|\n'
  awk -F '\t' '{ printf "| %s | %s | %s | %s |\n", $2, $3, $4, $5 }' "$rows"
}

table_of_sanitizers() {
  counts_by 1
  failures
}

# counts_by COLUMN: passed, failed, skipped and not run, of a suite (2) or a tool (1).
counts_by() {
  printf '\n| %s | passed | failed | skipped | not run |\n|---|---|---|---|---|\n' \
    "$([[ $1 == 1 ]] && echo tool || echo suite)"
  awk -F '\t' -v column="$1" '
    { name = $column; sub(/\/[^.]*$/, "", name); sub(/\.[^.]*$/, "", name) }
    !(name in seen) { seen[name] = 1; order[++names] = name }
    { count[name, $3]++ }
    END {
      for (i = 1; i <= names; ++i) {
        name = order[i]
        printf "| %s | %d | %d | %d | %d |\n", name, count[name, "passed"],
          count[name, "FAILED"], count[name, "skipped"], count[name, "not run"]
      }
    }' "$rows"
}

failures() {
  awk -F '\t' '$3 == "FAILED" || $3 == "not run" || ($3 == "skipped" && !told++) {
    printf "\n- %s %s: %s: %s\n", $1, $2, $3, $5 }' "$rows" | head -n 60
}

table_of_benchmark() {
  printf '\n| limit | measured |\n|---|---|\n'
  awk -F '\t' '{ printf "| %s | %s |\n", $1, $4 == "" ? $3 " " $2 : "FAILED: " $4 }' "$out/limits.tsv"
  printf '\nPyTorch: %s\n' "$(sed -n 's/^PyTorch\t//p' "$out/peers.tsv" | paste -sd ';')"
  printf '\n| case | kernel | ms | TFLOP/s | GB/s | share of the limit | call, ms | PyTorch, ms |\n'
  printf '|---|---|---|---|---|---|---|---|\n'
  awk -F '\t' '
    FILENAME ~ /limits.tsv$/ { limit[$1] = $3; next }
    FILENAME ~ /peers.tsv$/ { if ($2 != "begun") peers[$1] = $2; else if (!($1 in peers)) peers[$1] = "crashed"; next }
    NF < 8 { printf "| %s | %s: %s |||||||\n", $1, $3, $5; next }
    $7 != "" { printf "| %s | %s | FAILED: %s ||||||\n", $1, $2, $7; next }
    {
      type = $1 ~ / BF16 / ? "BF16" : $1 ~ / FP16 / ? "FP16" : "FP32"
      compute = limit[type " product"] > 0 ? $5 / $3 * 1e-12 / limit[type " product"] : 0
      memory = limit["copy on the device"] > 0 ? $6 / $3 * 1e-9 / limit["copy on the device"] : 0
      share = memory; of = "copy"
      if (compute > memory) { share = compute; of = "product" }
      if (peers[$1] == "") peers[$1] = "-"
      printf "| %s | %s | %.3f | %.1f | %.0f | %.0f %% of the %s | %.2f | %s |\n", $1, $2,
        $3 * 1e3, $5 / $3 * 1e-12, $6 / $3 * 1e-9, 100 * share, of, $4 * 1e3, peers[$1]
    }' "$out/limits.tsv" "$out/peers.tsv" "$rows"
}

table_of_profile() {
  printf '\n| case | kernel | time | SM, %% | DRAM, %% | IPC | registers | occupancy, %% |\n'
  printf '|---|---|---|---|---|---|---|---|\n'
  awk -F '\t' '{ $1 = $1; line = "|"; for (i = 1; i <= NF; ++i) line = line " " $i " |"; print line }' \
    "$rows"
}
