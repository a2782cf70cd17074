"""Main program of an export that spark-submit runs; its arguments are those of kctl.

It has a folder of its own, because spark-submit adds the folder of the program to the path of modules.
"""

import sys

from kctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
