"""An embedded Hub: the Hub's HTTP API on loopback, over real git repositories.

It lets a newcomer run everything without an account, lets a reviewer browse what would be published, and lets the tests
meet a Hub that can be told to fail. The unmodified ``huggingface_hub`` client speaks to it; nothing here imports
anything else of ``bot``.

Who may do what: each local user has a token. A namespace that carries a local user's name belongs to that user; every
other namespace is an organisation to which all local users belong, and it comes into being with its first repository.
Public repositories are read without a token; every write takes one.
"""

from __future__ import annotations

VERSION = "1"
"""What ``GET /api/embedded-hub`` answers as ``version``: the revision of this Hub's own extensions."""
