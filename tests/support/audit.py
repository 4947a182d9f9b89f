"""Ask pip-audit about every pinned package: `make audit`.

pip-audit leaves out what it could not look up and still ends with exit code 0. This program reads its JSON and fails if
a package is vulnerable, was left out, or is missing from the answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINNED = Path(__file__).resolve().parents[2] / "constraints.txt"
VULNERABLE, NOT_AUDITED = 1, 2  # exit codes


def pinned(text: str) -> set[str]:
    """The names of the packages in a file of constraints."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line.partition("==")[0].lower().replace("_", "-") for line in lines if line}


def verdict(names: set[str], answer: dict[str, Any]) -> tuple[int, str]:
    """The exit code for an answer of pip-audit about these packages, and what to say."""
    entries = {entry["name"].lower().replace("_", "-"): entry for entry in answer.get("dependencies", [])}
    left_out = sorted(name for name in names if "vulns" not in entries.get(name, {}))
    result = [
        f"{name} {entry['version']}: {vuln['id']}" for name, entry in entries.items() for vuln in entry.get("vulns", [])
    ]
    if result:
        return VULNERABLE, "Known vulnerabilities: " + "; ".join(result) + "."
    if left_out:
        return NOT_AUDITED, f"Not audited: {', '.join(left_out)}. Is there a network?"
    return 0, f"{len(names)} packages have no known vulnerability."


def main() -> int:
    """Run pip-audit, and return the exit code."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(PINNED), "--no-deps", "--disable-pip"]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        print(f"Not audited: {done.stderr.strip()[-500:]}", file=sys.stderr)
        return NOT_AUDITED
    code, message = verdict(pinned(PINNED.read_text("utf-8")), answer)
    print(message, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
