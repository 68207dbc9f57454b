"""Signed statements: a sigstore bundle, as GitHub's attest action makes one, checked offline.

The library of sigstore does the cryptography: the certificate and its chain, the log of certificates, the transparency
log's promise and proof, the signature. Here is asked what was signed: a statement about exactly these artifacts.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.errors import RecipeError, VerificationError
from bot.provenance.statement import BUILD_TYPE, read
from bot.records import Release

CARRIED = "release/provenance.sigstore.json"
"""Where a bundle lies in a target repository, if the release carries one."""

LARGEST_BUNDLE = 16 * 1024 * 1024
"""Bytes, of a bundle and of a trust root."""

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_ISSUERS = ("1.3.6.1.4.1.57264.1.8", "1.3.6.1.4.1.57264.1.1")
"""Extensions of a signing certificate that name who vouched for the signer's identity: DER-encoded, and plain."""


@dataclass(frozen=True)
class Signer:
    """Who signed, as the certificate says: an address or a workflow, and who vouched for that."""

    identity: str
    issuer: str


def can_verify() -> bool:
    """Whether the library of sigstore is installed."""
    from importlib.util import find_spec

    return find_spec("sigstore") is not None


def why_not_carried(data: bytes, release: Release) -> str:
    """Why a file is no bundle that a release may carry; empty if it is one, its signature aside.

    Only what can be seen without the library of sigstore is looked at: that it is a bundle, and about these artifacts.
    Whoever verifies the release checks the signature.
    """
    try:
        plain = json.loads(data)
        kind = str(plain["mediaType"])
        payload = read(base64.b64decode(plain["dsseEnvelope"]["payload"], validate=True))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it is no sigstore bundle"
    except VerificationError as error:
        return f"its statement {error.what}".rstrip(".")
    if not kind.startswith("application/vnd.dev.sigstore.bundle"):
        return "it is no sigstore bundle"
    signed = {str(each["digest"]["sha256"]) for each in payload["subject"]}
    missing = [artifact.file for artifact in release.built if artifact.sha256 not in signed]
    return f"it says nothing about {missing[0]}" if missing else ""


def verify_bundle(
    bundle: Path,
    release: Release,
    own: Mapping[str, Any] | None,
    *,
    trust_root: Path | None = None,
    identity: str = "",
    issuer: str = "",
) -> Signer:
    """Checks a bundle against a release whose artifacts were checked already. Nothing is asked of the network.

    Args:
        bundle: The file with the signature and its proofs.
        release: The record.
        own: The bot's statement in the repository, if there is one. A signed statement of the bot has to say the same.
        trust_root: Whom to trust, in sigstore's format; None for sigstore's public instance as the library knows it.
        identity: Who has to have signed; empty for anybody, who is then named in the answer.
        issuer: Who has to have vouched for that identity.

    Raises:
        RecipeError: The library is not installed, or a file cannot be read.
        VerificationError: The signature does not hold, is somebody else's, or is about something else.
    """
    data = _read(bundle)
    payload, signer = _verified(bundle, data, trust_root, identity, issuer)
    plain = read(payload, where=str(bundle))
    signed = {str(each["digest"]["sha256"]) for each in plain["subject"]}
    for artifact in release.built:
        if artifact.sha256 not in signed:
            raise VerificationError(
                f"is signed and says nothing about {artifact.file} with the sha256 {artifact.sha256}.",
                where=str(bundle),
                remedy="Use the bundle of this very release.",
            )
    definition = plain["predicate"].get("buildDefinition")
    ours = isinstance(definition, dict) and definition.get("buildType") == BUILD_TYPE
    if ours and (own is None or plain["predicate"] != own["predicate"]):
        raise VerificationError(
            "is signed and says other things than the statement in the repository.",
            where=str(bundle),
            remedy="Use the bundle of this very release.",
        )
    return signer


def _verified(path: Path, data: bytes, trust_root: Path | None, identity: str, issuer: str) -> tuple[bytes, Signer]:
    """The payload of a bundle whose signature holds, and who signed it."""
    _require_library()
    from sigstore.models import Bundle

    try:
        bundle = Bundle.from_json(data)
    except Exception as error:
        raise VerificationError(f"is no sigstore bundle: {_first_line(error)}", where=str(path)) from error
    verifier, policy = _verifier(trust_root), _policy(identity, issuer)
    try:
        kind, payload = verifier.verify_dsse(bundle, policy)
    except Exception as error:
        raise VerificationError(
            f"does not hold: {_first_line(error)}", where=str(path), remedy="Do not rely on this signature."
        ) from error
    if kind != _PAYLOAD_TYPE:
        raise VerificationError(f"signs something of the type {kind!r}, and no statement.", where=str(path))
    return bytes(payload), _signer(bundle.signing_certificate)


def _policy(identity: str, issuer: str) -> Any:
    """Who may have signed. Without any wish that is everybody, and the reader is told who it was."""
    from sigstore.verify import policy

    if not identity and not issuer:
        return policy.UnsafeNoOp()
    wishes: list[Any] = [policy.Identity(identity=identity)] if identity else []
    if issuer:
        wishes.append(policy.AnyOf([policy.OIDCIssuer(issuer), policy.OIDCIssuerV2(issuer)]))
    return policy.AllOf(wishes)


def _verifier(trust_root: Path | None) -> Any:
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    if trust_root is None:
        return Verifier.production(offline=True)
    _read(trust_root)
    try:
        return Verifier(trusted_root=TrustedRoot.from_file(str(trust_root)))
    except Exception as error:
        raise RecipeError(f"is no trust root of sigstore: {_first_line(error)}", where=str(trust_root)) from error


def _signer(certificate: Any) -> Signer:
    """What the certificate says of whoever holds its key."""
    from cryptography import x509

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(name.value) for name in names if hasattr(name, "value")]
    issuer = ""
    for oid in _ISSUERS:
        try:
            raw = bytes(certificate.extensions.get_extension_for_oid(x509.ObjectIdentifier(oid)).value.value)
        except x509.ExtensionNotFound:
            continue
        # The newer extension is a DER string: a tag, a length, the text. Addresses are shorter than 128 characters.
        issuer = (raw[2:] if raw[:1] == b"\x0c" else raw).decode("utf-8", "replace")
        break
    return Signer(", ".join(found), issuer)


def _require_library() -> None:
    try:
        import sigstore.verify  # noqa: F401
    except ImportError as error:
        raise RecipeError(
            "checking a signature needs the library of sigstore, which is not installed.",
            where="--bundle",
            remedy="Install the extra `provenance`: pip install 'hub-publishing-bot[provenance]'.",
        ) from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_BUNDLE + 1)
    except OSError as error:
        raise RecipeError(f"cannot be read: {error.strerror}.", where=str(path)) from error
    if len(data) > LARGEST_BUNDLE:
        raise RecipeError(f"is larger than {LARGEST_BUNDLE} bytes.", where=str(path))
    return data


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else type(error).__name__
