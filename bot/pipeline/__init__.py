"""Runs the stages in their order: fetch, build, measure, gate, card, publish, verify."""

from bot.pipeline.context import Context
from bot.pipeline.receiving import publish_handover
from bot.pipeline.releasing import Outcome
from bot.pipeline.remote import publish_remotely
from bot.pipeline.run import build, publish

__all__ = ["Context", "Outcome", "build", "publish", "publish_handover", "publish_remotely"]
