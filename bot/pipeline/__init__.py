"""Runs the stages in their order: fetch, build, measure, gate, card, publish, verify."""

from bot.pipeline.context import Context
from bot.pipeline.run import Outcome, build, publish

__all__ = ["Context", "Outcome", "build", "publish"]
