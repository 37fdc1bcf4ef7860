"""``python -m kb``: the same as the command ``kb``."""

import sys

from kb.launch import main

if __name__ == "__main__":
    sys.exit(main())
