"""Marian (Junczys-Dowmunt et al. 2018): both stacks as in Vaswani et al. 2017, but with sinusoids in halves."""

from __future__ import annotations

from glassformer.store.families.bart import BART
from glassformer.store.families.family import Family

MARIAN = Family(names=BART.names)
"""BART's names; names of parts that only BART has never occur. Marian computes its position table, and so do we."""
