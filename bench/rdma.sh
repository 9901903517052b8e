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
# Exit: 0 all ran, 1 something failed (the file says what), 2 wrong usage, 3 no
# RDMA device here. Needs python3; ssh and scp without a password for HOST. The
# server and the body's target listen without authentication while this runs: on
# a network you trust.
set -euo pipefail

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

if [ "$transport" = verbs ] && ! ls /sys/class/infiniband/* >/dev/null 2>&1; then
  say "rdma: this host has no RDMA device (/sys/class/infiniband is empty)."
  say "  A card: install its driver (mlx5_ib, irdma, bnxt_re) and libibverbs1 ibverbs-providers, set its port up."
  say "  Without a card: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEVICE (its speed says nothing)."
  say "  docs/rdma.md goes on from there; --transport tcp tries this script without one."
  exit 3
fi
tools=(cargo python3)
if [ -n "$host" ]; then tools+=(ssh scp getent); fi
for tool in "${tools[@]}"; do
  if ! command -v "$tool" >/dev/null; then
    say "rdma: $tool is missing here."
    exit 1
  fi
done

# A host that is gone is noticed.
ssh_options=(-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o ServerAliveCountMax=4)
# Words are for the shell over there.
# shellcheck disable=SC2029
there() { ssh "${ssh_options[@]}" "$host" "$@"; }
if [ -n "$host" ]; then
  : "${address:=$(getent ahostsv4 "${host#*@}" | awk '{ print $1; exit }')}"
  if ! there true; then
    say "rdma: ssh does not reach $host without a password (ssh -o BatchMode=yes $host true)."
    say "  Without ssh: --running, see docs/rdma.md, \"Your first hour\"."
    exit 1
  fi
  if [ -z "$address" ]; then usage "the address of $host is unknown here: give --address IP"; fi
fi
if [ -n "$running" ]; then wait_for_server "$running"; fi
start_bench
: "${out:=target/rdma.json}"

remote_dir="" target_ssh=""
# Called by lib.sh.
# shellcheck disable=SC2329
at_end() {
  if [ -n "$target_ssh" ]; then kill "$target_ssh" 2>/dev/null || true; fi
  if [ -n "$remote_dir" ]; then
    # The server ends with its standard input.
    exec 9>&- || true
    wait
    there "rm -rf '$remote_dir'" || true
  fi
}

# note NAME COMMAND...: its output and exit code, for the file.
note() {
  local name="$1" code=0
  shift
  say "$name"
  "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null || code=$?
  echo "$code" >"$work/$name.code"
}

fabric_port=0 target_port=0
if [ -n "$port" ]; then fabric_port=$((port + 1)) target_port=$((port + 2)); fi
: "${port:=0}"

# The settings as words for the other host's shell.
settings=""
for name in DEVICES TRAFFIC_CLASS SERVICE_LEVEL PKEY_INDEX MTU; do
  variable="REMORA_RDMA_$name"
  if [ -n "${!variable:-}" ]; then settings+="$variable=$(printf %q "${!variable}") "; fi
done

features=()
if [ "$transport" = verbs ]; then features=(--features rxe); fi
body="$(cargo test --quiet --release --package remora-fabric "${features[@]}" --test "${transport}_conformance" \
  --no-run --message-format json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)"
# The body's test that has its target elsewhere: the target, and who uses it.
elsewhere=(--exact conforms_with_a_target_elsewhere --nocapture --test-threads 1)

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
    note conformance-between env "REMORA_TEST_TARGET=$target" "$body" "${elsewhere[@]}"
  fi
  # It ends with its peer, or two minutes later if none has come.
  local code=0
  wait "$target_ssh" || code=$?
  target_ssh=""
  echo "$code" >"$work/target-there.code"
}

note doctor-here "$remora" doctor --json
note conformance-here "$body" --nocapture --test-threads 1

left_out=()
if [ -n "$running" ]; then
  server="$running"
  left_out=(doctor-there conformance-there)
  if [ -n "$target" ]; then
    note conformance-between env "REMORA_TEST_TARGET=$target" "$body" "${elsewhere[@]}"
  else
    say "rdma: the conformance body between the two hosts is left out: no --target"
    left_out+=(conformance-between)
  fi
else
  remote_dir="$(there mktemp -d)"
  scp -q "${ssh_options[@]}" "$remora" "$body" "$host:$remote_dir/"
  note doctor-there there "${settings}$remote_dir/remora doctor --json"
  note conformance-there there "${settings}$remote_dir/$(basename "$body") --nocapture --test-threads 1"
  between_the_two
  mkfifo "$work/stdin"
  there "${settings}$remote_dir/remora serve --owned-by-parent --bind $address --port $port \
    --fabric-address $address:$fabric_port \
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
  note "run.$what.$name" "$remora" bench "$what" --json --server "$server" --transport "$transport" "$@"
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

mkdir -p "$(dirname "$out")"
VERSION="$("$remora" version)" TRANSPORT="$transport" SETTINGS="$settings" LEFT_OUT="${left_out[*]}" \
  python3 - "$work" "$out" <<'P'
import json, os, pathlib, re, sys

work, out = pathlib.Path(sys.argv[1]), sys.argv[2]
steps = {}
for code in sorted(work.glob("*.code")):
    name = code.name.removesuffix(".code")
    text = (work / f"{name}.out").read_text(errors="replace")
    step = {"exit": int(code.read_text())}
    try:
        step["result"] = json.loads(text)
    except ValueError:
        step["output"] = text[-8192:]
    if step["exit"]:
        step["error"] = (work / f"{name}.err").read_text(errors="replace")[-8192:]
    steps[name] = step
log = work / "server.log"
whole = {
    "version": os.environ["VERSION"],
    "kernel": os.uname().release,
    "transport": os.environ["TRANSPORT"],
    "settings": os.environ["SETTINGS"].split(),
    "left_out": os.environ["LEFT_OUT"].split(),
    "server_log": log.read_text(errors="replace")[-8192:] if log.exists() else None,
    "steps": steps,
}
pathlib.Path(out).write_text(json.dumps(whole, indent=1) + "\n")
bodies = {
    name: f"{len(re.findall('conformance: [a-z_]+: ok', text))} checks ok"
    for name, step in steps.items()
    if "conformance: " in (text := step.get("output", "")) and not name.startswith("target")
}
failed = [name for name, step in steps.items() if step["exit"]]
for name, step in steps.items():
    result = step.get("result", {})
    if name.startswith("run.") and "ops_per_s" in result:
        print(f"{name:32} {result['ops_per_s']:12.0f} /s  p50 {result['p50_us']:8.2f} us  p99 {result['p99_us']:8.2f} us")
for name, said in bodies.items():
    print(f"{name:32} {said}")
print(f"{out}: {len(steps) - len(failed)} of {len(steps)} steps passed" + "".join(f"; failed: {name}" for name in failed))
sys.exit(bool(failed))
P
