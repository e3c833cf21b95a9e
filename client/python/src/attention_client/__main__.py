"""python -m attention_client."""

import sys

from attention_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
