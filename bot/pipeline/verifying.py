"""`bot verify`: a release held against its record, from the Hub alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bot.errors import RecipeError, VerificationError
from bot.pipeline.again import Known, fetch_again, known_recipe
from bot.pipeline.context import Context
from bot.pipeline.described import require_described
from bot.pipeline.findings import Finding, require_same
from bot.pipeline.license_findings import check_licenses
from bot.pipeline.rebuild import rebuild
from bot.pipeline.remeasure import remeasure

if TYPE_CHECKING:
    from bot.hub.verify import Verification


@dataclass(frozen=True)
class Wanted:
    """What of a release is to be verified besides its files.

    Attributes:
        measure: Take every figure of accuracy again.
        rebuild: Build the artifacts again, and compare them byte for byte.
        recipes: The verifier's own folder of recipes; None for none.
    """

    measure: bool = True
    rebuild: bool = False
    recipes: Path | None = None


@dataclass(frozen=True)
class Verified:
    """What a verification found.

    Attributes:
        verification: Of the files.
        findings: Of everything that was looked at again.
    """

    verification: Verification
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return self.verification.ok and all(finding.status != "differs" for finding in self.findings)

    def require(self, *, strict: bool = False) -> None:
        """Stops if something differs.

        Args:
            strict: What could not be checked stops as well, but for timings.

        Raises:
            VerificationError: Something does; the message names every file and figure, with what was recorded.
        """
        from bot.hub.verify import require

        where = f"{self.verification.repo}@{self.verification.commit[:12]}"
        wrong = []
        try:
            require(self.verification)
        except VerificationError as error:
            wrong.append(error)
        try:
            require_same(self.findings, where, strict=strict)
        except VerificationError as error:
            wrong.append(error)
        if wrong:
            raise VerificationError(" It ".join(each.what for each in wrong), where=where, remedy=wrong[0].remedy)


def verify_release(context: Context, repository: str, revision: str, wanted: Wanted = Wanted()) -> Verified:
    """Downloads a release into a fresh folder and holds it against its own record.

    Every file is compared and every model opened. Then what can be had of the upstream is fetched at the recorded
    commits, the licences are read again, every figure of accuracy is taken again, and with `rebuild` the artifacts are
    built again.

    Args:
        context: The surroundings.
        repository: `owner/name`.
        revision: A branch, a commit or `refs/pr/N`.
        wanted: How much to look at.

    Raises:
        UpstreamError: There is no such repository or revision.
        VerificationError: It holds no record that can be read, or a model that is none.
        RecipeError: It is to be built again, and the verifier's copy of the recipe is another one.
    """
    from bot.hub import verify as verifying

    context.work.clean()
    folder = context.work.temporary(context.work.root / "verify")
    context.reporter.stage("verify", f"{repository}@{revision}")
    try:
        verification = verifying.verify(
            context.hub, repository, revision, cache=folder / "files", progress=context.reporter.update
        )
        where = f"{repository}@{verification.commit[:12]}"
        usable = {}
        for artifact in verification.release.published:
            path = verification.folder / artifact.file
            if path.is_file() and not verification.differs(artifact.file):
                _require_model(context, path, f"{where}: {artifact.file}")
                require_described(context, verification.release, artifact, path, f"{where}: {artifact.file}")
                context.reporter.note(f"{artifact.file} is a valid model and opens")
                usable[artifact.name] = path
        findings = _look_again(context, verification, wanted, usable, folder, where)
        return Verified(verification, tuple(findings))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _look_again(
    context: Context, verification: Verification, wanted: Wanted, usable: dict[str, Path], folder: Path, where: str
) -> list[Finding]:
    """What goes beyond the files: licences, figures, and the build itself."""
    if not (wanted.measure or wanted.rebuild):
        return []
    release = verification.release
    try:
        known = known_recipe(context, release, wanted.recipes, folder, f"{where}: release.json: recipe_text")
    except RecipeError as error:
        if wanted.rebuild:
            raise
        unread = Finding("recipe", release.recipe, "not checked", reason=error.what)
        return [*check_licenses(context, release, None), unread]
    _tell(context, known)
    findings = check_licenses(context, release, known)
    again = fetch_again(context, known, release)
    findings += again.findings
    if wanted.measure:
        findings += remeasure(context, release, again, usable)
    if wanted.rebuild:
        findings += rebuild(context, release, known, again)
    return findings


def _tell(context: Context, known: Known) -> None:
    """Says which recipe the rest is checked by."""
    if known.is_own:
        context.reporter.note(f"{known.recipe.folder} is the recipe that it was made by")
    elif known.different:
        names = ", ".join(known.different)
        context.reporter.warn(f"{known.copy} is another recipe ({names}); the one in the record is used")
    else:
        context.reporter.note("the recipe in the record is used, since there is no copy of it here")


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
            `signed` if a bundle was given, or is carried by the release, and holds; `wrong` if the statement or the
            bundle does not hold; `unchecked` if the release carries a bundle and nothing is here to check it with.
        signer: Who signed, and who vouched for that.
        problem: What is wrong.
    """

    status: Literal["absent", "unsigned", "signed", "wrong", "unchecked"]
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
        bundle: A sigstore bundle; None for the one that the release carries.
        trust_root: Whom to trust; None for sigstore's public instance.
        signer: Who has to have signed; empty for anybody.
        issuer: Who has to have vouched for the signer's identity.

    Raises:
        RecipeError: A file cannot be read, or the library of sigstore is not installed.
        HubError: The statement could not be read.
    """
    from bot.provenance.bundle import CARRIED, can_verify, verify_bundle
    from bot.provenance.statement import PATH, read, why_not_of

    files = {file.path for file in verification.files if file.found}
    if bundle is None and CARRIED not in files and (signer or issuer):
        raise RecipeError(
            "the release carries no signature, and there is nothing to check without one.",
            where=f"{verification.repo}@{verification.commit[:12]}",
            remedy="Give --bundle FILE.",
        )
    release, where = verification.release, f"{verification.repo}@{verification.commit[:12]}: {PATH}"
    own = None
    try:
        if PATH in files:
            own = read(context.hub.read_bytes(verification.repo, verification.commit, PATH), where=where)
            if why := why_not_of(own, release):
                raise VerificationError(f"is not the statement about this release: {why}.", where=where)
        if bundle is None and CARRIED not in files:
            return Provenance("unsigned" if own else "absent")
        if bundle is None and not (signer or issuer) and not can_verify():
            return Provenance("unchecked")
        with _at_hand(context, verification, bundle) as path:
            found = verify_bundle(path, release, own, trust_root=trust_root, identity=signer, issuer=issuer)
    except VerificationError as error:
        return Provenance("wrong", problem=error)
    return Provenance("signed", f"{found.identity} (vouched for by {found.issuer})")


@contextmanager
def _at_hand(context: Context, verification: Verification, bundle: Path | None) -> Iterator[Path]:
    """The bundle to check as a file: the one that was given, or the one that the release carries."""
    from bot.provenance.bundle import CARRIED, LARGEST_BUNDLE

    if bundle is not None:
        yield bundle
        return
    folder = context.work.temporary(context.work.root / "verify")
    try:
        data = context.hub.read_bytes(verification.repo, verification.commit, CARRIED, largest=LARGEST_BUNDLE)
        (folder / Path(CARRIED).name).write_bytes(data)
        yield folder / Path(CARRIED).name
    finally:
        shutil.rmtree(folder, ignore_errors=True)
