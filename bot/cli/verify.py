"""`bot verify`: whether a repository holds what was released."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli import options


def verify(
    repository: Annotated[
        str,
        typer.Argument(
            metavar="OWNER/NAME[@REVISION]", help="A target repository; a branch, commit or refs/pr/N after @."
        ),
    ],
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="A sigstore bundle that signs the release's provenance.")
    ] = None,
    trust_root: Annotated[
        Path | None, typer.Option("--trust-root", help="Whom to trust in it; sigstore's public instance if left out.")
    ] = None,
    signer: Annotated[
        str, typer.Option("--signer", help="Who has to have signed: an address, or a workflow's URL with its ref.")
    ] = "",
    issuer: Annotated[str, typer.Option("--issuer", help="Who has to have vouched for the signer's identity.")] = "",
    hub: options.HubOption = None,
    hub_dir: options.HubDir = None,
    token_file: options.TokenFile = None,
    work: options.Work = None,
    require_isolation: options.RequireIsolation = False,
    as_json: options.AsJson = False,
) -> None:
    """Download a release into a fresh cache and hold every file against its record.

    Every file that release.json names must be there with its size and sha256, and every model must open. A signature
    over the release's provenance is checked offline, with --bundle. Exit code 8 names what differs.
    """
    from bot.cli.report import print_verification
    from bot.cli.session import open_context
    from bot.hub.verify import require
    from bot.pipeline.verifying import check_provenance, verify_release

    name, _, revision = repository.partition("@")
    with open_context(
        hub=hub, hub_dir=hub_dir, token_file=token_file, work=work, require=None, require_isolation=require_isolation
    ) as context:
        verification = verify_release(context, name, revision or "main")
        provenance = check_provenance(
            context, verification, bundle=bundle, trust_root=trust_root, signer=signer, issuer=issuer
        )
    print_verification(name, revision or "main", verification, provenance, as_json=as_json)
    require(verification)
    provenance.require()
