"""Runs the client library's own tests of the Hub against an embedded Hub."""
