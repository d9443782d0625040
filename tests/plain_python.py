"""``python -m plain_python -c CODE WORDS…`` or ``FILE WORDS…``: as without ``-m plain_python``.

With it, code and scripts can run in a fork of preloaded.py, which is a module's to ask for.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[0] == "-c":
        exec(compile(sys.argv.pop(1), "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
