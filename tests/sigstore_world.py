"""A sigstore of one's own: a certificate authority, a log of certificates, a transparency log, and a bundle from them.

Everything is real but for its fame: keys and certificates are made here, and the trust root names them. The formats
are those of RFC 6962 (logs), the DSSE envelope, Rekor's `dsse` entry of version 0.0.1, and sigstore's bundle of version
0.3.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

IDENTITY = "https://example.org/somebody/models/.github/workflows/publish.yml@refs/heads/main"
ISSUER = "https://token.example.org"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER_V1 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def der_string(tag: int, data: bytes) -> bytes:
    """A DER string of less than 64 KiB."""
    length = bytes([len(data)]) if len(data) < 128 else b"\x82" + struct.pack("!H", len(data))
    return bytes([tag]) + length + data


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def spki(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


@dataclass
class Sigstore:
    """The keys of one instance."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority made for a test")])
        key = self.authority.public_key()
        usage = _usage(key_cert_sign=True)
        self.root = (
            x509.CertificateBuilder(name, name, key, x509.random_serial_number())
            .not_valid_before(self.now - timedelta(days=1))
            .not_valid_after(self.now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    def trust_root(self) -> dict[str, Any]:
        """Whom to trust, in sigstore's format."""
        start = {"start": (self.now - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")}

        def instance(key: ec.EllipticCurvePrivateKey, url: str) -> dict[str, Any]:
            public = {"rawBytes": b64(spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": start}
            log_id = {"keyId": b64(hashlib.sha256(spki(key)).digest())}
            return {"baseUrl": url, "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": log_id}

        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [instance(self.log, "https://log.invalid")],
            "ctlogs": [instance(self.certificates, "https://certificates.invalid")],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "test", "commonName": "test"},
                    "uri": "https://authority.invalid",
                    "certChain": {"certificates": [{"rawBytes": b64(_der(self.root))}]},
                    "validFor": start,
                }
            ],
            "timestampAuthorities": [],
        }

    def bundle(self, payload: bytes, *, identity: str = IDENTITY, payload_type: str = PAYLOAD_TYPE) -> dict[str, Any]:
        """A bundle over a payload, as an action with a fresh key makes it."""
        key = new_key()
        certificate = self._certificate(key, identity)
        signature = sign(key, f"DSSEv1 {len(payload_type)} {payload_type} {len(payload)} ".encode() + payload)
        envelope = {
            "payload": b64(payload),
            "payloadType": payload_type,
            "signatures": [{"sig": b64(signature), "keyid": ""}],
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(_der(certificate))},
                "tlogEntries": [self._entry(payload, envelope, signature, certificate)],
            },
            "dsseEnvelope": envelope,
        }

    def _certificate(self, key: ec.EllipticCurvePrivateKey, identity: str) -> x509.Certificate:
        """A certificate for ten minutes, with the promise of the certificates' log in it."""
        serial = x509.random_serial_number()
        draft = self._signed(key, identity, serial, b"\x04\x00")
        stamp = int(self.now.timestamp() * 1000)
        tbs = draft.tbs_precertificate_bytes
        entry = hashlib.sha256(spki(self.authority)).digest() + struct.pack("!I", len(tbs))[1:] + tbs
        promise = sign(self.certificates, struct.pack("!BBQH", 0, 0, stamp, 1) + entry + struct.pack("!H", 0))
        log_id = hashlib.sha256(spki(self.certificates)).digest()
        sct = struct.pack("!B32sQHBBH", 0, log_id, stamp, 0, 4, 3, len(promise)) + promise
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        return self._signed(key, identity, serial, der_string(0x04, listed))

    def _signed(self, key: ec.EllipticCurvePrivateKey, identity: str, serial: int, scts: bytes) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder(self.root.subject, x509.Name([]), key.public_key(), serial)
            .not_valid_before(self.now - timedelta(minutes=5))
            .not_valid_after(self.now + timedelta(minutes=5))
        )
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key())
        v2 = der_string(0x0C, ISSUER.encode())
        for extension, critical in (
            (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), True),
            (_usage(digital_signature=True), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (issuer_id, False),
            (x509.UnrecognizedExtension(_ISSUER_V1, ISSUER.encode()), False),
            (x509.UnrecognizedExtension(_ISSUER_V2, v2), False),
            (x509.UnrecognizedExtension(_SCT_LIST, scts), False),
        ):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.authority, hashes.SHA256())

    def _entry(
        self, payload: bytes, envelope: dict[str, Any], signature: bytes, certificate: x509.Certificate
    ) -> dict[str, Any]:
        """The only entry of the transparency log, with its promise and its proof."""
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        body = rfc8785.dumps(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": _sha256(json.dumps(envelope).encode()),
                    "payloadHash": _sha256(payload),
                    "signatures": [{"signature": b64(signature), "verifier": b64(pem)}],
                },
            }
        )
        log_id = hashlib.sha256(spki(self.log)).digest()
        time = int(self.now.timestamp())
        promise = rfc8785.dumps({"body": b64(body), "integratedTime": time, "logID": log_id.hex(), "logIndex": 0})
        root = hashlib.sha256(b"\x00" + body).digest()
        note = f"log.invalid - 1\n1\n{b64(root)}\n"
        checkpoint = f"{note}\n\N{EM DASH} log.invalid {b64(log_id[:4] + sign(self.log, note.encode()))}\n"
        return {
            "logIndex": "0",
            "logId": {"keyId": b64(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": b64(sign(self.log, promise))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": b64(body),
        }


def _usage(**on: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: on.get(name, False) for name in names})


def _sha256(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)
