"""``python -m udf_compat SCRIPT [ARGS]``: runs a PySpark script with its UDFs on Ray actors, no import changed."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

USAGE = """usage: python -m udf_compat SCRIPT [ARGS]

Runs a PySpark script with all its UDFs on Ray actors; the script itself is not changed. With spark-submit:
spark-submit <folder of udf_compat>/__main__.py SCRIPT [ARGS]. RAY_ADDRESS names a Ray cluster to join.
"""


def main() -> None:
    """Install, then run the script as if it had been started by itself."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        sys.exit(0 if len(sys.argv) > 1 else 2)
    script = Path(sys.argv[1])
    if not script.is_file():
        sys.exit(f"python -m udf_compat: {script} is not a file")
    from platform_plugin.jdk import use_java
    from udf_compat.installing import install

    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    install()
    sys.stderr.write(f"udf_compat: the UDFs of {script} run on Ray actors\n")
    sys.argv = sys.argv[1:]
    # Python puts a script's own folder first.
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
