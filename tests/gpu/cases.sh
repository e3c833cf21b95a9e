# shellcheck shell=bash disable=SC2154  # variables are tests/gpu/run's
# GoogleTest cases, each with an outcome, whatever the program does: after one that failed,
# crashed or hung, a new process goes on with the next. To be sourced; tests/gpu/run says what
# $bin, $work and seconds_left() are.

# list_cases FILTER...: full names, those of the first filter first, none twice.
list_cases() {
  local filter
  for filter in "$@"; do
    "$bin/attention_gpu_test" --gtest_list_tests --gtest_filter="$filter" | awk '
      /^[A-Za-z].*\.( |$)/ { suite = $1; next }
      /^  / { print suite $1 }'
  done | awk '!seen[$0]++'
}

# plain TEXT: on one line, without tabs, 200 characters at most.
plain() { tr '\t\n' '  ' <<<"$1" | cut -c 1-200; }

# row LABEL CASE OUTCOME MILLISECONDS NOTE: to the step's table, as soon as it is known.
row() { printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "$(plain "$5")" >>"$rows"; }

# end_process PID FD: of the process and of all that it started.
end_process() {
  kill -KILL -- "-$1" 2>/dev/null
  wait "$1" 2>/dev/null
  exec {fd}<&-
}

# read_outcomes LABEL LIMIT: of the process whose output is $fd, until it ends, a case fails or
# says nothing for LIMIT seconds. Sets finished[CASE]; counts in $outcomes. What a case says behind
# "found: " is noted, of those that pass, too.
read_outcomes() {
  local label=$1 limit=$2 line current='' note='' wait_for ended=0
  while true; do
    wait_for=$(($(seconds_left) < limit ? $(seconds_left) : limit))
    ((wait_for > 0)) || break
    IFS= read -r -t "$wait_for" -u "$fd" line || {
      ended=$(($? <= 128))  # else it was the time that was over
      break
    }
    printf '%s\n' "$line" >>"$log"
    case $line in
      '[ RUN      ] '*) current=${line#*] } note='' ;;
      '[       OK ] '* | '[  SKIPPED ] '* | '[  FAILED  ] '*' ms)')
        [[ -n $current ]] || continue
        local outcome=passed
        [[ $line != *SKIPPED* ]] || outcome=skipped
        # What a sanitizer says of a case that passed.
        [[ $line != *FAILED* && $note != *=========* ]] || outcome=FAILED
        local took=${line##*(}
        row "$label" "$current" "$outcome" "${took%% *}" "$note"
        finished[$current]=1 outcomes=$((outcomes + 1)) current=''
        # An error of the device stays with its process: others would fail of it.
        [[ $outcome != FAILED ]] || return 0 ;;
      '========= '*[1-9]*' error'* | '========= '*hazard*': 0 '* | '========= COMPUTE-SANITIZER'*) ;;
      '========= ERROR SUMMARY: 0'* | '========= RACECHECK SUMMARY: 0'*) ;;
      'found: '*) note+=${note:+; }${line#found: } ;;
      '========= '* | *Failure* | *rror:* | *Skipped*) [[ -n $note ]] || note=$line ;;
      *) [[ ${#note} -gt 150 || -z $note ]] || note+=" $line" ;;
    esac
  done
  last_words=$line$note
  [[ -n $current ]] || return 0
  finished[$current]=1 outcomes=$((outcomes + 1))
  if ((ended)); then
    wait "$pid"
    row "$label" "$current" FAILED 0 "crashed: exit code $? $note"
  elif (($(seconds_left) < 1)); then
    row "$label" "$current" "not run" 0 "the step's time was over"
  else
    row "$label" "$current" FAILED "$((limit * 1000))" "no end after $limit s"
  fi
}

# run_cases LABEL LIMIT AT_ONCE COMMAND...: the cases that standard input names, AT_ONCE in a
# process, which is COMMAND with GoogleTest's flags.
run_cases() {
  local label=$1 limit=$2 at_once=$3 name outcomes last_words pid fd
  shift 3
  local -a names
  local -A finished=()
  mapfile -t names
  ((${#names[@]} > 0)) || row "$label" "all cases" FAILED 0 "the program lists none, or --only fits none"
  while (($(seconds_left) > 0)); do
    local -a next=()
    for name in "${names[@]}"; do
      [[ -n ${finished[$name]:-} ]] || next+=("$name")
      ((${#next[@]} < at_once)) || break
    done
    ((${#next[@]} > 0)) || return 0
    (IFS=:; printf -- '--gtest_filter=%s\n' "${next[*]}") >"$work/flags"
    rm -f "$work/output"
    mkfifo "$work/output"
    set -m  # a group of its own, to be ended as a whole
    "$@" --gtest_flagfile="$work/flags" >"$work/output" 2>&1 </dev/null &
    pid=$!
    set +m
    exec {fd}<"$work/output"
    outcomes=0
    read_outcomes "$label" "$limit"
    end_process "$pid"
    if ((outcomes == 0)) && (($(seconds_left) > 0)); then
      row "$label" "all further cases" FAILED 0 "the program ran none: ${last_words:-it said nothing}"
      return 0
    fi
  done
  local left=0
  for name in "${names[@]}"; do [[ -n ${finished[$name]:-} ]] || left=$((left + 1)); done
  ((left == 0)) || row "$label" "$left more cases" "not run" 0 "the step's time was over"
}
