"""``hide_folder.py FOLDER ARGUMENTS``: run Python so that it sees the folder empty. Takes root, on Linux."""

import os
import sys

if __name__ == "__main__":
    script = 'mount --types tmpfs tmpfs "$0" && exec "$@"'
    folder, *words = sys.argv[1:]
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", script, folder, sys.executable, *words])
