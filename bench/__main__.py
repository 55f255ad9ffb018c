"""Run all benchmarks, or those named: `python -m bench [NAME…]`."""

import pkgutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    names = sorted(module.name for module in pkgutil.iter_modules([str(HERE)]) if not module.name.startswith("_"))
    wanted = sys.argv[1:] or names
    unknown = set(wanted) - set(names)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    worst = 0
    for name in wanted:
        print(f"== {name}", flush=True)
        worst |= subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=HERE.parent, check=False).returncode
    return worst


if __name__ == "__main__":
    sys.exit(main())
