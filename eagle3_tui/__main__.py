"""`python -m eagle3_tui`."""

import sys

from eagle3_tui.cli import main

sys.exit(main())
