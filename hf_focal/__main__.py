"""`python -m hf_focal` is the `hf-focal` command."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
