"""The trainer: a process of its own, `python -m outrider.train.trainer JOB.json`, and the only place that imports torch.

::

    corpus -> packing -> feed ─┐                      tokens in order and length, in a thread of its own
    target -> features ────────┼─> loop ─> export     the frozen target's states; steps, checkpoints, the head's files
    head (eagle3 | p-eagle) ───┘    └─> evaluate      Speculators' modules, our batches
"""
