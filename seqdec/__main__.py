"""`python -m seqdec` is the command `seqdec`."""

import sys

from seqdec_command import main

if __name__ == "__main__":
    sys.exit(main())
