"""`bot verify`: a release held against its record, from the Hub alone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bot.errors import RecipeError, VerificationError
from bot.pipeline.context import Context

if TYPE_CHECKING:
    from bot.hub.verify import Verification


def verify_release(context: Context, repository: str, revision: str) -> Verification:
    """Downloads a release into a fresh folder, compares every file with the record, and opens every model.

    Raises:
        UpstreamError: There is no such repository or revision.
        VerificationError: It holds no record that can be read.
    """
    from bot.hub import verify as verifying

    context.work.clean()
    folder = context.work.temporary(context.work.root / "verify")
    context.reporter.stage("verify", f"{repository}@{revision}")
    try:
        verification = verifying.verify(
            context.hub, repository, revision, cache=folder, progress=context.reporter.update
        )
        for artifact in verification.release.published:
            path = verification.folder / artifact.file
            if path.is_file() and not verification.differs(artifact.file):
                _require_model(context, path, f"{repository}@{verification.commit[:12]}: {artifact.file}")
                context.reporter.note(f"{artifact.file} is a valid model and opens")
        return verification
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_model(context: Context, path: Path, where: str) -> None:
    """The ONNX library calls the file valid, and the runtime opens it.

    Raises:
        VerificationError: It is as it was released, and still it is no model that can be used here.
    """
    checked = context.call("graph.check", {"model": str(path)}, reads=[path.parent])
    opened = context.call("measure.open", {"model": str(path), "feeds": {}}, reads=[path.parent])
    for answer in (checked, opened):
        if not answer["ok"]:
            raise VerificationError(f"cannot be used: {answer['reason']}", where=where)


@dataclass(frozen=True)
class Provenance:
    """What is known of how a release came about.

    Attributes:
        status: `absent` if the repository holds no statement; `unsigned` if it holds one about this very release;
            `signed` if a bundle was given that holds; `wrong` if the statement or the bundle does not.
        signer: Who signed, and who vouched for that.
        problem: What is wrong.
    """

    status: Literal["absent", "unsigned", "signed", "wrong"]
    signer: str = ""
    problem: VerificationError | None = None

    def sentence(self) -> str:
        """The outcome for people."""
        details = {"signed": f" by {self.signer}", "wrong": f": {self.problem}"}
        return f"provenance: {self.status}{details.get(self.status, '')}"

    def require(self) -> None:
        """Stops if it is wrong.

        Raises:
            VerificationError: It is.
        """
        if self.problem is not None:
            raise self.problem


def check_provenance(
    context: Context,
    verification: Verification,
    *,
    bundle: Path | None = None,
    trust_root: Path | None = None,
    signer: str = "",
    issuer: str = "",
) -> Provenance:
    """Looks at the statement in a repository, and at a bundle that signs one.

    Args:
        context: The surroundings.
        verification: Of the release's files, which come first: a statement is only about digests.
        bundle: A sigstore bundle.
        trust_root: Whom to trust; None for sigstore's public instance.
        signer: Who has to have signed; empty for anybody.
        issuer: Who has to have vouched for the signer's identity.

    Raises:
        RecipeError: A file cannot be read, or the library of sigstore is not installed.
        HubError: The statement could not be read.
    """
    from bot.provenance.bundle import verify_bundle
    from bot.provenance.statement import PATH, read, why_not_of

    if bundle is None and (trust_root or signer or issuer):
        raise RecipeError(
            "there is nothing to check without a bundle.", where="bot verify", remedy="Give --bundle FILE."
        )
    release, where = verification.release, f"{verification.repo}@{verification.commit[:12]}: {PATH}"
    own = None
    try:
        if any(file.path == PATH and file.found for file in verification.files):
            own = read(context.hub.read_bytes(verification.repo, verification.commit, PATH), where=where)
            if why := why_not_of(own, release):
                raise VerificationError(f"is not the statement about this release: {why}.", where=where)
        if bundle is None:
            return Provenance("unsigned" if own else "absent")
        found = verify_bundle(bundle, release, own, trust_root=trust_root, identity=signer, issuer=issuer)
    except VerificationError as error:
        return Provenance("wrong", problem=error)
    return Provenance("signed", f"{found.identity} (vouched for by {found.issuer})")
