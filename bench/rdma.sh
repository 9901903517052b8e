#!/usr/bin/env bash
# For whoever has RDMA: what two hosts make of it, in one JSON file to send back.
#
#   bench/rdma.sh HOST                      HOST is reached by ssh; this binary is copied there and serves
#   bench/rdma.sh --running HOST:PORT       a `remora serve` that runs there already, by its RESP port
#   --address IP      address of HOST on the RDMA network [default: HOST's own, by getent]
#   --transport tcp   the same over TCP, to see that the script works
#   --short           few operations
#   --out FILE        where the JSON goes [default: target/rdma.json]
#
# It runs `remora doctor` on both hosts; the conformance body on each host over
# its own devices (two queue pairs of one process, as the tests have it); then
# tables of keys and places from here to HOST: asked, read and chosen, one thread
# and four. With --running the other host's doctor and body are left out.
#
# Settings go by the environment, to both hosts: REMORA_RDMA_DEVICES,
# REMORA_RDMA_TRAFFIC_CLASS, REMORA_RDMA_SERVICE_LEVEL, REMORA_RDMA_PKEY_INDEX,
# REMORA_RDMA_MTU. See docs/rdma.md, "Your first hour".
#
# Exit: 0 all ran, 1 something failed (the file says what), 2 wrong usage, 3 no
# RDMA device here. Needs python3; ssh and scp without a password for HOST. The
# server listens without authentication while this runs: on a network you trust.
set -euo pipefail

host="" running="" address="" transport=verbs divisor=1 out=""
usage() { sed -n '/^#   bench/,/^#   --out/s/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --running) running="${2:?}"; shift ;;
    --address) address="${2:?}"; shift ;;
    --transport) transport="${2:?}"; shift ;;
    --short) divisor=100 ;;
    --out) out="$(realpath -m "${2:?}")"; shift ;;
    -*) usage ;;
    *) host="$1" ;;
  esac
  shift
done
if [ -z "$host$running" ]; then usage; fi
case "$transport" in verbs | tcp) ;; *) usage ;; esac
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"

if [ "$transport" = verbs ] && ! ls /sys/class/infiniband/* >/dev/null 2>&1; then
  say "rdma: this host has no RDMA device (/sys/class/infiniband is empty)."
  say "  A card: install its driver (mlx5_ib, irdma, bnxt_re) and libibverbs1 ibverbs-providers, set its port up."
  say "  Without a card: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev DEVICE (its speed says nothing)."
  say "  docs/rdma.md goes on from there; --transport tcp tries this script without one."
  exit 3
fi
start_bench
: "${out:=target/rdma.json}"

there() { ssh -o BatchMode=yes "$host" "$@"; }
remote_dir=""
# Called by lib.sh.
# shellcheck disable=SC2329
at_end() {
  if [ -n "$remote_dir" ]; then
    # The server ends with its standard input.
    exec 9>&- || true
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
note doctor-here "$remora" doctor --json
note conformance-here "$body" --test-threads 1

if [ -n "$running" ]; then
  server="$running"
else
  : "${address:=$(getent ahostsv4 "$host" | awk '{ print $1; exit }')}"
  remote_dir="$(there mktemp -d)"
  scp -q "$remora" "$body" "$host:$remote_dir/"
  note doctor-there there "$settings$remote_dir/remora doctor --json"
  note conformance-there there "$settings$remote_dir/$(basename "$body") --test-threads 1"
  mkfifo "$work/stdin"
  there "$settings$remote_dir/remora serve --owned-by-parent --bind $address --port 0 --fabric-address $address:0 \
    --transport $transport --max-memory 2GiB --socket $remote_dir/own/s" \
    <"$work/stdin" >"$work/ready" 2>"$work/server.log" &
  exec 9>"$work/stdin"
  for _ in $(seq 600); do
    if grep -q '^ready ' "$work/ready"; then break; fi
    sleep 0.1
  done
  server="$(sed -n 's/^ready resp=\([^ ]*\) .*/\1/p' "$work/ready")"
  if [ -z "$server" ]; then
    say "rdma: the server on $host did not start:"
    cat "$work/server.log" >&2
    exit 1
  fi
fi

# measure BENCH NAME FLAGS...
measure() {
  local what="$1" name="$2"
  shift 2
  note "run.$what.$name" "$remora" bench "$what" --json --server "$server" --transport "$transport" "$@"
}
for clients in 1 4; do
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
VERSION="$("$remora" version)" TRANSPORT="$transport" SETTINGS="$settings" python3 - "$work" "$out" <<'P'
import json, os, pathlib, sys

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
    "server_log": log.read_text(errors="replace")[-8192:] if log.exists() else None,
    "steps": steps,
}
pathlib.Path(out).write_text(json.dumps(whole, indent=1) + "\n")
failed = [name for name, step in steps.items() if step["exit"]]
for name, step in steps.items():
    result = step.get("result", {})
    if name.startswith("run.") and "ops_per_s" in result:
        print(f"{name:32} {result['ops_per_s']:12.0f} /s  p50 {result['p50_us']:8.2f} us  p99 {result['p99_us']:8.2f} us")
print(f"{out}: {len(steps) - len(failed)} of {len(steps)} steps passed" + "".join(f"; failed: {name}" for name in failed))
sys.exit(bool(failed))
P
