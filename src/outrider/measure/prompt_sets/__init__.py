"""Prompt sets: public ones and the user's own, read the same way for every arm and every run.

A spec is followed through five steps: `find` says which file it means (name, path or hub id), `records` reads that file within
limits, one module a format turns a record into a prompt or says why not, `order` fixes the order, `load` puts it together.
"""

from outrider.measure.prompt_sets.catalog import set_names
from outrider.measure.prompt_sets.load import load_prompt_set
from outrider.measure.prompt_sets.options import PromptOptions
from outrider.measure.prompt_sets.order import held_out

__all__ = ["PromptOptions", "held_out", "load_prompt_set", "set_names"]
