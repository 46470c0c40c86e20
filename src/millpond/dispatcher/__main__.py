"""`python -m millpond.dispatcher`: runs a dispatcher in the foreground."""

import sys

from millpond.dispatcher.server import main

if __name__ == "__main__":
    sys.exit(main())
