#!/usr/bin/env python3
"""The one JSON file of rdma.sh: rdma_report.py EXIT OUT WORK

WORK has NAME.code, NAME.out and NAME.err of each step; it may be empty. EXIT is 0 if the
script came to its end, else the environment says where it ended. Fails if something has.
"""
import json
import os
import pathlib
import re
import sys

KEPT = 8192


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def step_of(work, code):
    name = code.name.removesuffix(".code")
    text = read(work / f"{name}.out")
    step = {"exit": int(code.read_text())}
    try:
        step["result"] = json.loads(text)
    except ValueError:
        step["output"] = text[-KEPT:]
    if step["exit"]:
        step["error"] = read(work / f"{name}.err")[-KEPT:]
    return name, step


def show(steps):
    for name, step in steps.items():
        result = step.get("result", {})
        if name.startswith("run.") and "ops_per_s" in result:
            rate, p50, p99 = result["ops_per_s"], result["p50_us"], result["p99_us"]
            print(f"{name:32} {rate:12.0f} /s  p50 {p50:8.2f} us  p99 {p99:8.2f} us")
    for name, step in steps.items():
        text = step.get("output", "")
        if "conformance: " in text and not name.startswith("target"):
            checks = len(re.findall("conformance: [a-z_]+: ok", text))
            print(f"{name:32} {checks} checks ok")


def main():
    code, out, said = int(sys.argv[1]), pathlib.Path(sys.argv[2]), os.environ
    work = pathlib.Path(sys.argv[3]) if sys.argv[3] else None
    steps = dict(step_of(work, file) for file in sorted(work.glob("*.code"))) if work else {}
    log = work / "server.log" if work else None
    whole = {
        "version": said["VERSION"],
        "kernel": os.uname().release,
        "transport": said["TRANSPORT"],
        "settings": said["SETTINGS"].split(),
        "left_out": list(dict.fromkeys(said["LEFT_OUT"].split())),
        "server_log": read(log)[-KEPT:] if log and log.exists() else None,
        "steps": steps,
    }
    if code:
        where = {"while": said["DOING"], "reason": said["REASON"], "command": said["COMMAND"]}
        whole["ended_early"] = {"exit": code, **where}
    out.write_text(json.dumps(whole, indent=1) + "\n")
    show(steps)
    failed = [name for name, step in steps.items() if step["exit"]]
    passed = f"{out}: {len(steps) - len(failed)} of {len(steps)} steps passed"
    ended = [f"; it ended early, while: {said['DOING']}"] if code else []
    print("".join([passed, *(f"; failed: {name}" for name in failed), *ended]))
    sys.exit(bool(failed or code))


if __name__ == "__main__":
    main()
