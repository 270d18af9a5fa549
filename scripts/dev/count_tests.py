#!/usr/bin/env python3
"""Counts the test cases of a ctest run. Prints the ten slowest entries, the failed cases, and last "N passed, N failed". Exits
with status 1 if a case failed, 2 if none ran.

    scripts/dev/count_tests.py JUNIT RESULTS     JUNIT: ctest --output-junit; RESULTS: the folder of GoogleTest's JSON files

An entry of ctest is either a GoogleTest program, whose cases are in RESULTS/ENTRY.json, or a command, which is one case. A
program that dies before it writes its file counts as one failed case.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree

SHOWN = 10


def cases_of(program):
    """Yields (name, has_failed) for each case that a GoogleTest program ran. Skipped and disabled cases are left out."""
    for suite in program["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("result") == "COMPLETED":
                yield f"{suite['name']}.{case['name']}", bool(case.get("failures"))


def count(entry, has_failed, results):
    """Returns (number of passed cases, names of failed cases) of one entry of ctest."""
    file = results / f"{entry}.json"
    if not file.is_file():
        return (0, [entry]) if has_failed else (1, [])
    cases = list(cases_of(json.loads(file.read_text())))
    failed = [f"{entry}: {name}" for name, is_failure in cases if is_failure]
    passed = len(cases) - len(failed)
    if has_failed and not failed:
        failed = [f"{entry}: the program failed after its last case"]
    return passed, failed


def main():
    junit, results = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    entries = [(case.get("name"), case.get("status"), float(case.get("time")))
               for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase")]
    ran = [entry for entry in entries if entry[1] in ("run", "fail")]
    if not ran:
        sys.exit(2)
    print(f"the {min(SHOWN, len(ran))} of {len(ran)} programs and commands that took longest:")
    for name, _, seconds in sorted(ran, key=lambda entry: -entry[2])[:SHOWN]:
        print(f"  {seconds:6.1f} s  {name}")
    passed, failed = 0, []
    for name, status, _ in ran:
        more_passed, more_failed = count(name, status == "fail", results)
        passed += more_passed
        failed += more_failed
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


main()
