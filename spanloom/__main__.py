"""`python -m spanloom` is the command `spanloom`."""

import sys

from spanloom.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
