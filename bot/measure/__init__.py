"""Measuring: samples, accuracy, latency, and the checks that every artifact passes through.

Whatever parses a stranger's bytes stands in `tasks` and runs in the isolated worker. Nothing in here knows the Hub.
"""
