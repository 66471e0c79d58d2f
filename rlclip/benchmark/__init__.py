"""What the parts of a step cost, item by item; figures of one process.

Seconds are of a machine and its moment, ratios carry further. On shared cores
the wall clock stretches long work more than short; the processor time of the
process does not, and says nothing of an accelerator: both are there.
"""
# Importing an item's module is what registers it.
from rlclip.benchmark import losses, machine, tails, workload
from rlclip.benchmark.measure import Item, ITEMS, Options, Result

__all__ = [
    'Item', 'ITEMS', 'Options', 'Result', 'losses', 'machine', 'tails',
    'workload']
