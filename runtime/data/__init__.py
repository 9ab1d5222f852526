"""People's files in, trainable samples out, every dropped line accounted for.

In:  paths (files, folders, zip archives), the bundle's Scenario, its tokenizer and chat format.
Out: a training cache file in the workspace, and an IngestReport that names what was kept, dropped and why.
The folder reads in the order of the data flow: sources, encoding, head, readers, records, speakers, rules, windows, cache, ingest.
"""

from .cache import Sample, TrainingCache
from .ingest import IngestOptions, ingest
from .report import IngestReport
from .scenario import Scenario

__all__ = ["IngestOptions", "IngestReport", "Sample", "Scenario", "TrainingCache", "ingest"]
