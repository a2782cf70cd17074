"""Runs commands of kctl one after the other in one JVM: the main program of a spark-submit.

The argument is a file with a list of command lines in JSON.  Prints a list of [exit status, stdout, stderr].
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.integration.spark.peer import run_engine

results = [run_engine("local", *words) for words in json.loads(Path(sys.argv[1]).read_text())]
sys.stdout.write(json.dumps(results) + "\n")
