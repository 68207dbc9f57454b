"""The part of GitHub that signs statements about running jobs: real keys, real signatures, on loopback."""

from __future__ import annotations

import http.server
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


@dataclass
class Issuer:
    """Signs what it was told about jobs, for whoever holds a job's request token.

    Attributes:
        url: Its address, which is also the issuer's name.
        jobs: What is known of each job, by its request token.
        given: The statements that were signed: claims, audience included.
    """

    url: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: list[dict[str, Any]] = field(default_factory=list)
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    key_id: str = "first"

    def start(self) -> Issuer:
        """Listens on loopback."""
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, answer = issuer.answer(self.path, self.headers.get("Authorization", ""))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
        """What it answers to a GET."""
        parts = urlsplit(path)
        if parts.path == "/.well-known/openid-configuration":
            return 200, {"issuer": self.url, "jwks_uri": f"{self.url}/.well-known/jwks"}
        if parts.path == "/.well-known/jwks":
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
            return 200, {"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]}
        job = self.jobs.get(authorization.removeprefix("Bearer ").strip())
        if parts.path == "/token" and job is not None:
            audience = parse_qs(parts.query).get("audience", ["https://github.com/somebody"])[0]
            return 200, {"value": self.sign(job, audience)}
        return 403, {"message": "no such job"}

    def admit(self, claims: dict[str, Any]) -> dict[str, str]:
        """The variables of a job that may ask, with what is known of it."""
        token = secrets.token_urlsafe(24)
        self.jobs[token] = claims
        return {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": token,
        }

    def sign(self, claims: dict[str, Any], audience: str, **other: Any) -> str:
        """A signed statement."""
        now = int(time.time())
        said = {"iss": self.url, "aud": audience, "iat": now, "nbf": now, "exp": now + 300, "jti": secrets.token_hex(8)}
        said |= {**claims, **other}
        self.given.append(said)
        return jwt.encode(said, self.key, algorithm="RS256", headers={"kid": self.key_id})


def claims_of(
    repository: str = "somebody/models",
    *,
    branch: str = "main",
    workflow: str = "publish.yml",
    called: str = "",
    environment: str = "",
) -> dict[str, Any]:
    """What GitHub says of a job. `called` is the workflow file that the job stands in, if another one called it."""
    ref, folder = f"refs/heads/{branch}", f"{repository}/.github/workflows"
    where = f"environment:{environment}" if environment else f"ref:{ref}"
    claims = {
        "sub": f"repo:{repository}:{where}",
        "repository": repository,
        "repository_owner": repository.partition("/")[0],
        "ref": ref,
        "ref_type": "branch",
        "sha": "ab" * 20,
        "workflow_ref": f"{folder}/{workflow}@{ref}",
        "job_workflow_ref": f"{folder}/{called or workflow}@{ref}",
        "event_name": "workflow_dispatch",
        "runner_environment": "github-hosted",
    }
    return {**claims, "environment": environment} if environment else claims
