"""Checks that the running Python has the packages of a benchmark, and names the right environment if not."""

import importlib.util
import pathlib
import sys

# By environment: the command that makes it.
SETUP = {
    ".venv-huggingface": "run `scripts/setup.sh --oracle` and use `.venv-huggingface/bin/python bench/peers/{script}`",
    ".venv-peers": "run `scripts/setup.sh --peers` and use `.venv-peers/bin/python bench/peers/{script}`",
    ".venv-rlhf": "run `scripts/setup.sh --peers` and use `.venv-rlhf/bin/python bench/peers/{script}`",
    ".venv-oracle": "run `scripts/setup.sh --oracle` and use `.venv-oracle/bin/python bench/peers/{script}`",
    ".venv-deepspeed": "it is started by {starter}; run `scripts/setup.sh --oracle` and use "
                       "`.venv-oracle/bin/python bench/peers/{starter}`, which makes .venv-deepspeed",
}


def packages(*names, environment=".venv-oracle", starter=None):
    """Requires the packages `names`. If one is missing, prints the command to use and exits with status 2. `starter` is the
    script that starts this one as a rank."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    here, script = pathlib.Path(__file__).resolve().parent, pathlib.Path(sys.argv[0]).resolve()
    script = script.relative_to(here) if script.is_relative_to(here) else script.name
    hint = SETUP[environment].format(script=starter or script, starter=starter)
    print(f"{script}: this needs {' and '.join(missing)}, which {sys.executable} does not have: {hint}", file=sys.stderr)
    sys.exit(2)
