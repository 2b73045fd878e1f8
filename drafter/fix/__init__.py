"""A copy of a checkpoint that serves a wanted ordering of recorded states: what would change, and the new folder."""

from drafter.fix.folder import write
from drafter.fix.plan import Plan, plan, plan_json

__all__ = ["Plan", "plan", "plan_json", "write"]
