#!/usr/bin/env python3
"""Adds up the results of ./check.

    tally.py FOLDER                       prints failures, skips and flaky tests, then 'N passed, N failed, N skipped'
    tally.py FOLDER --record STAGE NAME pass|fail|skip [FILE|TEXT]
                                          adds one result; FILE: a log whose end is kept

FOLDER holds JUnit XML as ctest and pytest write it, STAGE.xml, and STAGE.again.xml for the tests that failed and
were run once more alone. A test that passed then counts as passed and is printed as flaky with its first failure.
Exit status: 0 if nothing failed and something passed."""

import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass

TAIL = 60        # lines of a failed test's output
CONTROL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]|\x1b\[[0-9;]*m")


@dataclass
class Result:
    name: str
    outcome: str        # pass, fail, skip
    detail: str = ""


def text_of(case, *tags):
    parts = []
    for tag in tags:
        for element in case.findall(tag):
            parts += [element.get("message") or "", element.text or ""]
    return "\n".join(part.strip("\n") for part in parts if part.strip())


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def skip_reason(case):
    """pytest puts the reason into the message; ctest only says that the program returned 77: its output has it."""
    message = text_of(case, "skipped")
    if message.startswith("SKIP_RETURN_CODE"):
        output = text_of(case, "system-out").splitlines()
        said = [line.strip() for line in output if "skip" in line.lower() and not line.startswith("[  SKIPPED ] 0")]
        return said[0] if said else last_line("\n".join(output)) or "the program gave no reason"
    return last_line(message) or "no reason given"


def result_of(case):
    name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
    if case.get("classname") == case.get("name"):
        name = case.get("name")
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return Result(name, "fail", text_of(case, "failure", "error", "system-out", "system-err"))
    skipped = case.find("skipped")
    if skipped is not None or case.get("status") in ("notrun", "disabled"):
        message = skipped.get("message", "") if skipped is not None else ""
        if case.get("status") == "notrun" and not message.startswith("SKIP_"):
            return Result(name, "fail", f"could not be run: {message}")
        return Result(name, "skip", skip_reason(case))
    return Result(name, "pass")


def read(path):
    try:
        results = [result_of(case) for case in ET.parse(path).getroot().iter("testcase")]
        return {r.name: r for r in results} or {path.stem: Result(path.stem, "fail", "no test was run")}
    except (ET.ParseError, OSError) as error:
        return {path.name: Result(path.name, "fail", f"unreadable results: {error}")}


def stages(folder):
    """(stage, name, result, first failure or None)"""
    for path in sorted(folder.glob("*.xml")):
        if path.name.endswith(".again.xml"):
            continue
        again_path = path.with_name(path.stem + ".again.xml")
        again = read(again_path) if again_path.exists() else {}
        for name, first in read(path).items():
            second = again.get(name)
            flaky = first.outcome == "fail" and second is not None and second.outcome == "pass"
            yield path.stem.split("-", 1)[-1], name, second if flaky else first, first if flaky else None


def tail(text):
    lines = text.rstrip().splitlines()
    cut = [f"... {len(lines) - TAIL} lines before"] if len(lines) > TAIL else []
    return "\n".join("    " + line for line in cut + lines[-TAIL:])


def report(folder):
    count = {"pass": 0, "fail": 0, "skip": 0}
    late = []
    for stage, name, result, first_failure in stages(folder):
        count[result.outcome] += 1
        if first_failure:
            print(f"flaky {stage}: {name}: failed, then passed alone. The failure was:\n{tail(first_failure.detail)}")
        elif result.outcome == "skip":
            late.append(f"skipped {stage}: {name}: {result.detail}")
        elif result.outcome == "fail":
            late.append(f"FAILED {stage}: {name}\n{tail(result.detail)}")
    late.sort(key=lambda line: line.startswith("FAILED"))
    if late:
        print("\n".join(late))
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped", flush=True)
    return 0 if count["pass"] and not count["fail"] else 1


def record(folder, stage, name, outcome, detail):
    if detail and os.path.isfile(detail):
        detail = pathlib.Path(detail).read_text(errors="replace")[-20000:]
    suite = ET.Element("testsuite", name=stage)
    case = ET.SubElement(suite, "testcase", name=name, classname=name)
    if outcome != "pass":
        ET.SubElement(case, "failure" if outcome == "fail" else "skipped").text = CONTROL.sub("", detail)
    ET.ElementTree(suite).write(folder / f"{stage}.xml")
    return 0


def main():
    folder = pathlib.Path(sys.argv[1])
    if sys.argv[2:3] == ["--record"]:
        stage, name, outcome, *detail = sys.argv[3:]
        return record(folder, stage, name, outcome, " ".join(detail))
    return report(folder)


if __name__ == "__main__":
    sys.exit(main())
