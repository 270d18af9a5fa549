"""Makes .venv-deepspeed: DeepSpeed from PyPI with compiled CPU operators, and the PyTorch of the running Python."""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import train_vs

FOLDER = train_vs.ROOT / ".venv-deepspeed"
PACKAGE = "deepspeed==0.19.8"
# Compiles the operators that training on the CPU uses. DeepSpeed would compile each at its first use, within the measured time.
# On the CPU its FusedAdam has the loops of its CPUAdam.
COMPILE = """
from deepspeed.accelerator import get_accelerator
for builder in ("FusedAdamBuilder", "ShareMemCommBuilder"):
    get_accelerator().create_op_builder(builder).load()
"""


def variables():
    """Returns DeepSpeed's environment variables: the CPU as accelerator, and a separate folder for compiled operators."""
    return {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "TORCH_EXTENSIONS_DIR": str(FOLDER / "operators"),
            "PATH": f"{FOLDER / 'bin'}:{os.environ['PATH']}"}


def step(what, hint, command):
    print(f"==> {what}", file=sys.stderr, flush=True)
    done = subprocess.run(list(map(str, command)), env=train_vs.environment(**variables()), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        train_vs.give_up(f"{what} failed: {hint}. Its last lines:\n{''.join(done.stdout.splitlines(True)[-15:])}")


def make(python):
    if FOLDER.is_symlink():
        train_vs.give_up(f"{FOLDER} is a link to an environment made for another PyTorch or another folder, and making it again "
                         "would empty that one: remove the link, then run this again")
    if shutil.which("g++") is None or not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        train_vs.give_up("DeepSpeed compiles its operators with g++ and Python's headers: install g++ and python3-dev")
    step(f"making {FOLDER}", "is python3-venv installed, is the disk full?", [sys.executable, "-m", "venv", "--clear", FOLDER])
    # A .pth file makes the running Python's PyTorch visible, so that its 5 GB are not installed twice.
    library = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    pathlib.Path(library, "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    step(f"installing {PACKAGE}", "check the network and the free disk space, then run this again",
         [python, "-m", "pip", "install", "--disable-pip-version-check", PACKAGE])
    step("compiling DeepSpeed's operators (minutes)", "its output says why", [python, "-c", COMPILE])


def torch_version():
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        train_vs.give_up(f"{sys.executable} has no PyTorch: use .venv-oracle/bin/python, which scripts/setup.sh --oracle makes")


def deepspeed_python():
    """Returns the environment's Python. Makes the environment if it is missing or its versions are not the wanted ones."""
    python, stamp = FOLDER / "bin/python", FOLDER / "zt-setup-stamp"
    wanted = f"{PACKAGE} torch {torch_version()} {sysconfig.get_path('purelib')}\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        make(python)
        stamp.write_text(wanted)
    return python
