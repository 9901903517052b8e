# Sourced by the scripts beside it: runs of `remora bench` in rounds, and
# medians over the rounds.
#
# `start_bench` goes to the repository's root, builds the binary and makes a
# directory, $work, that is removed at the end. `run NAME FLAGS...` runs `bench
# keys`, or what $bench names, behind the words of $prefix (as taskset's), and leaves the run's JSON object
# in $work/NAME.json. `keep KEY VALUE` notes a value of this
# round; `median KEY` is taken over all that were kept.
# shellcheck shell=bash

prefix=()

say() { echo "$*" >&2; }

# Called at the end, however it comes; a script may replace it.
at_end() { :; }

start_bench() {
  cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
  cargo build --release -p remora >&2
  remora="${CARGO_TARGET_DIR:-target}/release/remora"
  work="$(mktemp -d)"
  trap 'at_end; rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
}

run() {
  local name="$1"
  shift
  "${prefix[@]}" "$remora" bench "${bench:-keys}" --json "$@" >"$work/$name.json" 2>"$work/$name.log" ||
    { cat "$work/$name.log" >&2; exit 1; }
}

# field NAME FIELD: a number of a run's object.
field() { sed -n "s/.*\"$2\":\([-+.0-9eE]*\).*/\1/p" "$work/$1.json"; }
# command NAME: what repeats a run.
command_of() { sed -n 's/.*"command":"\([^"]*\)".*/\1/p' "$work/$1.json"; }

keep() { echo "$2" >>"$work/all.$1"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4f\n", a / b }'; }
median() {
  sort -g "$work/all.$1" |
    awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for_server HOST:PORT
wait_for_server() {
  for _ in $(seq 100); do
    (exec 3<>"/dev/tcp/${1%:*}/${1#*:}") 2>/dev/null && return
    sleep 0.1
  done
  say "no server at $1"
  exit 1
}

# rate OPS_PER_S: for people.
rate() {
  awk -v v="$1" 'BEGIN {
    if (v < 1e6) printf "%.*f k/s", v < 1e5 ? 1 : 0, v / 1e3
    else printf "%.2f M/s", v / 1e6
  }'
}

# The machine and what ran on it, as two parts of a sentence.
machine() {
  local cpu
  cpu="$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)"
  echo "$(nproc) cores, ${cpu:-CPU unknown}; $(uname -sr), $("$remora" version)"
}
