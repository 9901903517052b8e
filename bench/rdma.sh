#!/usr/bin/env bash
# For whoever has RDMA: what two hosts make of it, in one JSON file to send back.
#
#   bench/rdma.sh HOST                      HOST is reached by ssh; this binary is copied there and serves
#   bench/rdma.sh --running HOST:PORT       a `remora serve` that runs there already, by its RESP port
#   --target HOST:PORT  with --running: a target of the conformance body that runs there already
#   --address IP      address of HOST on the RDMA network [default: HOST's own, by getent]
#   --port N          ports of HOST: N for RESP, N+1 for the fabric, N+2 for the body's target [default: free ones]
#   --transport tcp   the same over TCP, to see that the script works
#   --short           few operations
#   --out FILE        where the JSON goes [default: target/rdma.json]
#
# It runs `remora doctor` on both hosts; the conformance body on each host over
# its own devices, and from here to a target on HOST; then tables of keys and
# places from here to HOST: asked, read and chosen, one thread and four. With
# --running the other host's doctor and body are left out, and the body between
# the two unless --target says where to find its target (docs/rdma.md).
#
# Settings go by the environment, to both hosts: REMORA_RDMA_DEVICES,
# REMORA_RDMA_TRAFFIC_CLASS, REMORA_RDMA_SERVICE_LEVEL, REMORA_RDMA_PKEY_INDEX,
# REMORA_RDMA_MTU. See docs/rdma.md, "Your first hour".
#
# Exit: 0 all ran, 1 something failed, 2 wrong usage, 3 no RDMA device here.
# However it ends, but for wrong usage, the file says what ran, what failed and
# where. Needs python3; ssh and scp without a password for HOST. The server and
# the body's target listen without authentication while this runs: on a network
# you trust.
set -Eeuo pipefail

host="" running="" target="" address="" port="" transport=verbs divisor=1 out=""
usage() {
  if [ $# -gt 0 ]; then echo "rdma: $*" >&2; fi
  sed -n '/^#   bench/,/^#   --out/s/^#   //p' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case "$1" in
    --running | --target | --address | --port | --transport | --out)
      if [ $# -lt 2 ]; then usage "$1 needs a value"; fi
      declare "${1#--}=$2"
      shift
      ;;
    --short) divisor=100 ;;
    -*) usage "there is no flag $1" ;;
    *)
      if [ -n "$host" ]; then usage "one HOST, not $host and $1"; fi
      host="$1"
      ;;
  esac
  shift
done
if [ -z "$host$running" ]; then usage "HOST or --running HOST:PORT is missing"; fi
if [ -n "$host" ] && [ -n "$running" ]; then usage "HOST or --running HOST:PORT, not both"; fi
if [ -n "$target" ] && [ -z "$running" ]; then usage "--target goes with --running: at HOST it is started"; fi
case "$transport" in verbs | tcp) ;; *) usage "--transport is verbs or tcp" ;; esac
case "$port" in *[!0-9]*) usage "--port is a number" ;; esac
for place in "$running" "$target"; do
  case "$place" in "" | *:[0-9]*) ;; *) usage "$place is no HOST:PORT" ;; esac
done
if [ -n "$out" ]; then out="$(realpath -m "$out")"; fi
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/.."
: "${out:=target/rdma.json}"
remora="${CARGO_TARGET_DIR:-target}/release/remora"

# For the file, if the script ends early: what it was about to do, the command
# that failed, and the reason where it is a known one.
doing="start" failed_command="" reason="" is_reported=""
work="" remote_dir="" target_ssh="" settings="" left_out=()

# give_up EXIT LINE...: ends, for a reason that people can mend.
give_up() {
  local code="$1" line
  shift
  reason="$1"
  for line in "$@"; do say "rdma: $line"; done
  exit "$code"
}

# report EXIT: writes the file. Fails if something has.
report() {
  is_reported=yes
  if ! mkdir -p "$(dirname "$out")"; then return 1; fi
  if ! command -v python3 >/dev/null; then
    printf '{"ended_early": {"exit": %d, "while": "%s", "reason": "%s"}}\n' \
      "$1" "$doing" "${reason//[\"\\]/}" >"$out"
    return 1
  fi
  VERSION="$("$remora" version 2>/dev/null || true)" TRANSPORT="$transport" SETTINGS="$settings" \
    LEFT_OUT="${left_out[*]-}" DOING="$doing" COMMAND="$failed_command" REASON="$reason" \
    python3 bench/rdma_report.py "$1" "$out" "$work"
}

at_end() {
  local code=$?
  trap - ERR
  set +e
  if [ -n "$target_ssh" ]; then kill "$target_ssh" 2>/dev/null; fi
  if [ -n "$remote_dir" ]; then
    # The server ends with its standard input.
    { exec 9>&-; } 2>/dev/null
    wait
    there "rm -rf '$remote_dir'"
  fi
  if [ -z "$is_reported" ]; then report "$code"; fi
  if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap at_end EXIT
trap 'reason="it was interrupted"; exit 130' INT TERM
# The first failure is the cause of what fails after it.
trap ': "${failed_command:=line $LINENO: $BASH_COMMAND}"' ERR

doing="make a directory for results"
work="$(mktemp -d)"

# note NAME COMMAND...: its output and exit code, for the file. Fails as it does.
note() {
  local name="$1" code=0
  shift
  say "$name"
  doing="$name"
  "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null || code=$?
  echo "$code" >"$work/$name.code"
  if [ "$code" != 0 ]; then
    say "rdma: $name failed ($code):"
    tail -n 5 "$work/$name.err" >&2
  fi
  return "$code"
}
# try NAME COMMAND...: as note; what comes after does not depend on it.
try() { note "$@" || true; }

doing="look for RDMA devices and tools"
if [ "$transport" = verbs ] && ! ls /sys/class/infiniband/* >/dev/null 2>&1; then
  give_up 3 "this host has no RDMA device (/sys/class/infiniband is empty)." \
    "  A card: install its driver (mlx5_ib, irdma, bnxt_re) and libibverbs1 ibverbs-providers, set its port up." \
    "  Without a card: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEVICE (its speed says nothing)." \
    "  docs/rdma.md goes on from there; --transport tcp tries this script without one."
fi
tools=(cargo python3)
if [ -n "$host" ]; then tools+=(ssh scp getent); fi
for tool in "${tools[@]}"; do
  if ! command -v "$tool" >/dev/null; then give_up 1 "$tool is missing here."; fi
done

# A host that is gone is noticed.
ssh_options=(-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=4)
# Words are for the shell over there.
# shellcheck disable=SC2029
there() { ssh "${ssh_options[@]}" "$host" "$@"; }
if [ -n "$host" ]; then
  : "${address:=$(getent ahostsv4 "${host#*@}" | awk '{ print $1; exit }')}"
  if ! note ssh there true; then
    give_up 1 "ssh does not reach $host without a password (ssh -o BatchMode=yes $host true)." \
      "  Without ssh: --running, see docs/rdma.md, \"Your first hour\"."
  fi
  if [ -z "$address" ]; then give_up 2 "the address of $host is unknown here: give --address IP"; fi
fi
if [ -n "$running" ]; then
  doing="look for a server at $running"
  wait_for_server "$running"
fi
if ! note build cargo build --release -p remora; then give_up 1 "remora does not build here"; fi

fabric_port=0 target_port=0
if [ -n "$port" ]; then fabric_port=$((port + 1)) target_port=$((port + 2)); fi
: "${port:=0}"

# The settings as words for the other host's shell.
for name in DEVICES TRAFFIC_CLASS SERVICE_LEVEL PKEY_INDEX MTU; do
  variable="REMORA_RDMA_$name"
  if [ -n "${!variable:-}" ]; then settings+="$variable=$(printf %q "${!variable}") "; fi
done

# Tests over verbs are a binary of their own.
features=() tests=fabric
if [ "$transport" = verbs ]; then features=(--features rxe) tests=verbs; fi
try build-conformance cargo test --quiet --release --package remora-fabric "${features[@]}" \
  --test "$tests" --no-run --message-format json
# Empty if it does not build: then it is left out everywhere.
body="$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$work/build-conformance.out" | tail -n 1)"
# What cargo says of every crate is of no use in the file.
: >"$work/build-conformance.out"
# The body's test that has its target elsewhere: the target, and who uses it.
elsewhere=(--exact "${transport}_conformance::conforms_with_a_target_elsewhere" --nocapture --test-threads 1)

# wait_for FILE PATTERN PID: until the process says so, or has ended.
wait_for() {
  for _ in $(seq 600); do
    if grep -qs "$2" "$1"; then return; fi
    if ! kill -0 "$3" 2>/dev/null; then return; fi
    sleep 0.1
  done
}

# Starts the body's target on HOST, and runs the body from here against it.
between_the_two() {
  doing="start the conformance body's target on $host"
  there "REMORA_TEST_LISTEN=$address:$target_port ${settings}$remote_dir/$(basename "$body") ${elsewhere[*]}" \
    </dev/null >"$work/target-there.out" 2>"$work/target-there.err" &
  target_ssh=$!
  wait_for "$work/target-there.out" 'target listens at' "$target_ssh"
  target="$(sed -n 's/.*target listens at //p' "$work/target-there.out")"
  if [ -z "$target" ]; then
    say "rdma: the conformance body's target on $host did not start:"
    cat "$work/target-there.out" "$work/target-there.err" >&2
    kill "$target_ssh" 2>/dev/null || true
  else
    try conformance-between env "REMORA_TEST_TARGET=$target" "$body" "${elsewhere[@]}"
  fi
  # It ends with its peer, or two minutes later if none has come.
  local code=0
  wait "$target_ssh" || code=$?
  target_ssh=""
  echo "$code" >"$work/target-there.code"
}

try doctor-here "$remora" doctor --json
if [ -n "$body" ]; then
  try conformance-here "$body" "${transport}_conformance::" --nocapture --test-threads 1
else
  left_out+=(conformance-here conformance-there conformance-between)
fi

if [ -n "$running" ]; then
  server="$running"
  left_out+=(doctor-there conformance-there)
  if [ -n "$target" ] && [ -n "$body" ]; then
    try conformance-between env "REMORA_TEST_TARGET=$target" "$body" "${elsewhere[@]}"
  elif [ -z "$target" ]; then
    say "rdma: the conformance body between the two hosts is left out: no --target"
    left_out+=(conformance-between)
  fi
else
  if ! note directory-there there mktemp -d; then give_up 1 "no directory can be made on $host"; fi
  remote_dir="$(cat "$work/directory-there.out")"
  files=("$remora")
  if [ -n "$body" ]; then files+=("$body"); fi
  if ! note copy-there scp -q "${ssh_options[@]}" "${files[@]}" "$host:$remote_dir/"; then
    give_up 1 "the programs cannot be copied to $host"
  fi
  try doctor-there there "${settings}$remote_dir/remora doctor --json"
  if [ -n "$body" ]; then
    try conformance-there there "${settings}$remote_dir/$(basename "$body") ${transport}_conformance:: --nocapture --test-threads 1"
    between_the_two
  fi
  doing="start the server on $host"
  mkfifo "$work/stdin"
  there "${settings}$remote_dir/remora serve --owned-by-parent --bind $address --port $port \
    --fabric-address $address:$fabric_port --protected-mode=false \
    --transport $transport --max-memory 2GiB --socket $remote_dir/s" \
    <"$work/stdin" >"$work/ready" 2>"$work/server.log" &
  serving=$!
  exec 9>"$work/stdin"
  wait_for "$work/ready" '^ready ' "$serving"
  server="$(sed -n 's/^ready resp=\([^ ]*\) .*/\1/p' "$work/ready")"
  if [ -z "$server" ]; then
    say "rdma: the server on $host did not start:"
    cat "$work/server.log" >&2
    cp "$work/ready" "$work/server.out"
    cp "$work/server.log" "$work/server.err"
    echo 1 >"$work/server.code"
  fi
fi

# measure BENCH NAME FLAGS...
measure() {
  local what="$1" name="$2"
  shift 2
  try "run.$what.$name" "$remora" bench "$what" --json --server "$server" --transport "$transport" "$@"
}
clients_of_runs=(1 4)
if [ -z "$server" ]; then clients_of_runs=(); fi
for clients in "${clients_of_runs[@]}"; do
  for path in ask read choose; do
    measure keys "$path.$clients" --path "$path" --clients "$clients" \
      --records $((1000000 / divisor)) --ops $((1000000 / divisor))
    for scale in 0.00001 0.01; do
      measure places "$path.$scale.$clients" --path "$path" --clients "$clients" --load bulk --scale "$scale" \
        --records $((500000 / divisor)) --ops $((200000 / divisor))
    done
  done
  measure keys "ask32.$clients" --path ask --pipeline 32 --clients "$clients" \
    --records $((1000000 / divisor)) --ops $((4000000 / divisor))
  measure keys "read16.$clients" --path read --batch 16 --clients "$clients" \
    --records $((1000000 / divisor)) --ops $((4000000 / divisor))
done

doing="write the file"
report 0
