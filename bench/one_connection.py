"""One RESP connection, one request at a time: what it costs the server with the client on the
server's core, and with the client on another one.

    python3 bench/one_connection.py              three rounds of 20,000 GETs
    --rounds N  --ops N                          so many

Remora (target/release/remora) and Redis run on core 0, redis-benchmark on core 0 and then on
core 1. Prints medians: requests a second, the server's CPU time, its system calls if strace can
count them (in a run of its own), and the kernel's reschedule interrupts of the whole machine
(RES in /proc/interrupts), each for a request. Then the row `resp` of the demo, pinned to core 0,
and as the kernel places it. Needs redis-server, redis-cli, redis-benchmark, taskset.
"""

import argparse
import glob
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

REMORA = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release/remora")
KEY, VALUE = "place:2988507", "Paris|FR|48.85341|2.3488|2138551"
LONGEST_S = 120


def cpu_ns(pid):
    """CPU time of all threads of a process."""
    stats = glob.glob(f"/proc/{pid}/task/*/schedstat")
    return sum(int(open(stat).read().split()[0]) for stat in stats)


def reschedules():
    """Reschedule interrupts of all cores."""
    lines = open("/proc/interrupts").read().splitlines()
    words = next(line.split() for line in lines if line.split()[:1] == ["RES:"])
    return sum(int(word) for word in words[1:] if word.isdigit())


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    return done.stdout


def gets(port, core, ops):
    run(["taskset", "-c", str(core), "redis-benchmark", "-p", str(port), "-c", "1", "-n", str(ops)]
        + ["-q", "GET", KEY])


def measured(server, port, core, ops):
    """Requests a second, CPU time in us and interrupts, each for a request."""
    cpu, interrupts, began = cpu_ns(server.pid), reschedules(), time.monotonic()
    gets(port, core, ops)
    took = time.monotonic() - began
    return (ops / took, (cpu_ns(server.pid) - cpu) / ops / 1e3, (reschedules() - interrupts) / ops)


def system_calls(server, port, core, ops):
    """System calls for a request; None where they cannot be counted."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as counts:
        traced = ["strace", "-c", "-f", "-o", counts.name, "-p", str(server.pid)]
        tracer = subprocess.Popen(traced, stderr=subprocess.DEVNULL)
        time.sleep(1)
        gets(port, core, ops)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(LONGEST_S)
        total = re.search(r"^100\.00 +\S+ +\S+ +(\d+) .*total$", counts.read(), re.M)
    return int(total[1]) / ops if total else None


def compare(rounds, ops, directory):
    servers = {
        "Remora": (7493, [REMORA, "serve", "--port=7493", f"--socket={directory}/remora.sock",
                          "--pin=false", "--shards=1", "--max-memory=300m", "--log=warn"]),
        "Redis": (7494, ["redis-server", "--port", "7494", "--save", ""]),
    }
    print("| Server | client on | requests/s | server CPU, us | system calls | reschedule interrupts |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (port, command) in servers.items():
        server = subprocess.Popen(["taskset", "-c", "0"] + command, stdout=subprocess.DEVNULL)
        try:
            time.sleep(2)
            run(["redis-cli", "-p", str(port), "SET", KEY, VALUE])
            shares = [(measured(server, port, 0, ops), measured(server, port, 1, ops))
                      for _ in range(rounds)]
            for core, where in [(0, "the same core"), (1, "another core")]:
                rate, cpu, interrupts = (statistics.median(share[core][at] for share in shares)
                                         for at in range(3))
                calls = system_calls(server, port, core, ops // 10)
                calls = "not counted" if calls is None else f"{calls:.2f}"
                print(f"| {name} | {where} | {rate:,.0f} | {cpu:.1f} | {calls} | {interrupts:.2f} |")
        finally:
            server.terminate()
            server.wait(LONGEST_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ops", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        compare(options.rounds, options.ops, directory)
    print()
    for where, pinned in [("on core 0", ["taskset", "-c", "0"]), ("as placed", [])]:
        for _ in range(options.rounds):
            rows = run(pinned + [REMORA, "demo"]).splitlines()
            print(f"demo {where}: {next(row for row in rows if row.startswith('resp '))}")


if __name__ == "__main__":
    main()
