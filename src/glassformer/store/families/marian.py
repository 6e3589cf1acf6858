"""Marian (Junczys-Dowmunt et al. 2018): both stacks as in Vaswani et al. 2017, its sinusoids in halves."""

from __future__ import annotations

from glassformer.store.families.bart import BART
from glassformer.store.families.family import Family

MARIAN = Family(names=BART.names)
"""BART's names; what only BART has, Marian's models lack. Its table of positions is computed, here as there."""
