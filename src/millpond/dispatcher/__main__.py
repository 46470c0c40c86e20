"""python -m millpond.dispatcher: starts a dispatcher and stays."""

import sys

from millpond.dispatcher.server import main

if __name__ == "__main__":
    sys.exit(main())
