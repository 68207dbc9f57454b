"""Samples for measuring: which there are, which are taken, and what a network is fed of them.

Importing this imports nothing heavy.
"""

from bot.measure.loaders import LOADERS, SamplePlan, parse_plan, required_files

__all__ = ["LOADERS", "SamplePlan", "parse_plan", "required_files"]
