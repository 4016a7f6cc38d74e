"""``python -m integration_tests.bench [NAME ...]``."""

import sys

from integration_tests.bench import find_benches, run

unknown = [name for name in sys.argv[1:] if name not in find_benches()]
if unknown:
    sys.exit(f"no bench {', '.join(unknown)}; found: {', '.join(find_benches())}")
run(sys.argv[1:])
