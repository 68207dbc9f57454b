"""`bot verify`: whether a repository holds what was released, and whether it comes out again."""

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
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Build the files again from upstream, with the code that is here, and compare every byte."
        ),
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Whether to take every figure of accuracy again.")
    ] = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="What cannot be checked here counts as wrong, timings apart.")
    ] = False,
    recipes: options.Recipes = options.DEFAULT_RECIPES,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="A sigstore bundle in place of the one that the release carries.")
    ] = None,
    trust_root: Annotated[
        Path | None,
        typer.Option(
            "--trust-root",
            help="Whom to trust in it; sigstore's public instance if left out.",
            envvar="BOT_TRUST_ROOT",
        ),
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
    """Download a release into a fresh cache and hold everything against its record.

    Every file must be there with its sha256, and every model must open. The source and the samples are fetched at
    their recorded commits, licences are read again, and every figure of accuracy has to come out within the spread that
    the record gives. What cannot be had is not checked, and said. Exit code 8 names what differs.
    """
    from bot.cli.session import open_context
    from bot.cli.verify_report import print_verified
    from bot.pipeline.verifying import Wanted, check_provenance, verify_release

    name, _, revision = repository.partition("@")
    with open_context(
        hub=hub, hub_dir=hub_dir, token_file=token_file, work=work, require=None, require_isolation=require_isolation
    ) as context:
        verified = verify_release(context, name, revision or "main", Wanted(measure, rebuild, recipes))
        provenance = check_provenance(
            context, verified.verification, bundle=bundle, trust_root=trust_root, signer=signer, issuer=issuer
        )
    print_verified(name, revision or "main", verified, provenance, as_json=as_json)
    verified.require(strict=strict)
    provenance.require()
