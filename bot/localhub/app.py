"""The embedded Hub as an ASGI application: what answers which address, and what may call at all."""

from __future__ import annotations

import asyncio
import base64
import hmac
import io
import logging
import secrets
from email.utils import formatdate
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bot.localhub import (
    VERSION,
    api_access,
    api_discussions,
    api_files,
    api_jobs,
    api_oidc,
    api_repos,
    api_webhooks,
    git_http,
    pages,
    xet,
    xet_downloads,
)
from bot.localhub.errors import HubError, repo_not_found
from bot.localhub.faults import Faults, from_json, hang_up, own_answer, read_to_the_end, send_damaged
from bot.localhub.jobs import Jobs
from bot.localhub.lfs import Signer
from bot.localhub.limits import Limiter
from bot.localhub.oidc import Exchange
from bot.localhub.store import Store, User
from bot.localhub.web import (
    LARGE_BODY,
    Call,
    Route,
    Router,
    answer,
    error_answer,
    json_answer,
    read_body,
    session_cookie,
)
from bot.localhub.webhooks import Webhooks

FAULTS_PATH = "/api/embedded-hub/faults"
log = logging.getLogger("bot.localhub")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def about(call: Call) -> Response:
    """``GET /api/embedded-hub``: how a client recognises an embedded Hub."""
    return json_answer({"embedded": True, "version": VERSION, "instance": call.store.instance})


def no_harnesses(call: Call) -> Response:
    """``GET /api/agent-harnesses``: the client's best-effort question; the embedded Hub knows none."""
    raise HubError(404, "Not here")


def no_namespace(call: Call) -> Response:
    """Answer for a repository without a namespace: the Hub has old ones, the embedded Hub has none."""
    raise repo_not_found(call["name"])


def get_faults(call: Call) -> Response:
    """``GET /api/embedded-hub/faults``: the faults that are set, and how often each struck."""
    call.writer()
    return json_answer({"faults": call.faults.listed()})


def set_faults(call: Call) -> Response:
    """``POST /api/embedded-hub/faults``: add one fault, or those under the key ``faults``."""
    call.writer()
    body = call.json_object()
    given = body["faults"] if isinstance(body.get("faults"), list) else [body]
    for fault in [from_json(item) for item in given]:
        call.faults.add(fault)
    return json_answer({"faults": call.faults.listed()})


def clear_faults(call: Call) -> Response:
    """``DELETE /api/embedded-hub/faults``: remove all faults."""
    call.writer()
    call.faults.clear()
    return json_answer({"faults": []})


def routes() -> list[Route]:
    """Return all routes; the first that fits is taken."""
    api = [
        *_general_routes(),
        *_webhook_routes(),
        *_job_routes(),
        *_repo_routes(),
        *_discussion_routes(),
        *_xet_routes(),
    ]
    return [*api, *_bare_name_routes(), *_file_routes(), *_page_routes()]


def _bare_name_routes() -> list[Route]:
    """Return the routes of repositories without a namespace, after those of names with one."""
    repo = "/api/{kind}/{name}"
    return [
        Route("GET", repo, no_namespace),
        *(Route("GET", f"{repo}/{what}/{{rev}}", no_namespace) for what in ("revision", "commits", "tree")),
        Route("POST", f"{repo}/preupload/{{rev}}", no_namespace),
        Route("DELETE", f"{repo}/like", no_namespace),
    ]


def _general_routes() -> list[Route]:
    return [
        Route("GET", "/api/embedded-hub", about),
        Route("GET", FAULTS_PATH, get_faults),
        Route("POST", FAULTS_PATH, set_faults),
        Route("DELETE", FAULTS_PATH, clear_faults),
        Route("POST", "/oauth/token", api_oidc.exchange, own_token=True),
        Route("GET", "/api/agent-harnesses", no_harnesses),
        Route("GET", "/api/whoami-v2", api_repos.whoami),
        Route("POST", "/api/validate-yaml", api_repos.validate_yaml),
        Route("POST", "/api/repos/create", api_repos.create_repo),
        Route("DELETE", "/api/repos/delete", api_repos.delete_repo),
        Route("POST", "/api/repos/move", api_repos.move_repo),
        Route("GET", "/api/{kind}", api_repos.list_repos),
        Route("GET", "/{name}/resolve/{rev}/{path*}", no_namespace),
    ]


def _webhook_routes() -> list[Route]:
    base = "/api/settings/webhooks"
    return [
        Route("GET", base, api_webhooks.list_hooks),
        Route("POST", base, api_webhooks.create_hook),
        Route("GET", f"{base}/{{id}}", api_webhooks.get_hook),
        Route("POST", f"{base}/{{id}}", api_webhooks.update_hook),
        Route("DELETE", f"{base}/{{id}}", api_webhooks.delete_hook),
        Route("POST", f"{base}/{{id}}/{{what}}", api_webhooks.switch_hook),
    ]


def _job_routes() -> list[Route]:
    base, one = "/api/jobs/{ns}", "/api/jobs/{ns}/{job}"
    return [
        Route("POST", base, api_jobs.start),
        Route("GET", base, api_jobs.listing),
        Route("GET", one, api_jobs.inspect),
        Route("GET", f"{one}/logs", api_jobs.logs),
        Route("POST", f"{one}/cancel", api_jobs.cancel),
        Route("POST", f"{one}/duplicate", api_jobs.duplicate),
        Route("PUT", f"{one}/labels", api_jobs.relabel),
    ]


def _repo_routes() -> list[Route]:
    repo = "/api/{kind}/{ns}/{name}"
    return [
        Route("GET", repo, api_repos.repo_info),
        Route("GET", f"{repo}/revision/{{rev}}", api_repos.repo_info),
        Route("PUT", f"{repo}/settings", api_repos.settings),
        Route("GET", f"{repo}/auth-check", api_repos.auth_check),
        Route("GET", f"{repo}/auth-check/{{what}}", api_repos.auth_check),
        Route("GET", f"{repo}/refs", api_repos.refs),
        Route("GET", f"{repo}/commits/{{rev}}", api_repos.commits),
        Route("POST", f"{repo}/branch/{{branch}}", api_repos.create_branch),
        Route("DELETE", f"{repo}/branch/{{branch}}", api_repos.delete_branch),
        Route("POST", f"{repo}/tag/{{rev}}", api_repos.create_tag),
        Route("DELETE", f"{repo}/tag/{{tag}}", api_repos.delete_tag),
        Route("GET", f"{repo}/tree/{{rev}}", api_files.tree),
        Route("GET", f"{repo}/tree/{{rev}}/{{path*}}", api_files.tree),
        Route("POST", f"{repo}/paths-info/{{rev}}", api_files.paths_info),
        Route("POST", f"{repo}/preupload/{{rev}}", api_files.preupload_files),
        Route("POST", f"{repo}/commit/{{rev}}", api_files.commit, LARGE_BODY),
        Route("POST", f"{repo}/lfs-files/duplicate", api_files.lfs_duplicate),
        Route("POST", f"{repo}/user-access-request/handle", api_access.handle),
        Route("POST", f"{repo}/user-access-request/grant", api_access.grant),
        Route("GET", f"{repo}/user-access-request/{{status}}", api_access.listing),
        Route("GET", f"{repo}/trusted-publishers", api_oidc.listing),
        Route("PUT", f"{repo}/trusted-publishers", api_oidc.replace),
    ]


def _discussion_routes() -> list[Route]:
    base = "/api/{kind}/{ns}/{name}/discussions"
    return [
        Route("GET", base, api_discussions.listing),
        Route("POST", base, api_discussions.create),
        Route("GET", f"{base}/{{num}}", api_discussions.details),
        Route("POST", f"{base}/{{num}}/comment", api_discussions.comment),
        Route("POST", f"{base}/{{num}}/comment/{{id}}/edit", api_discussions.edit_comment),
        Route("POST", f"{base}/{{num}}/comment/{{id}}/hide", api_discussions.hide_comment),
        Route("POST", f"{base}/{{num}}/status", api_discussions.status),
        Route("POST", f"{base}/{{num}}/title", api_discussions.title),
        Route("POST", f"{base}/{{num}}/merge", api_discussions.merge),
    ]


def _xet_routes() -> list[Route]:
    cas = "/cas/{instance}"
    repo = "/api/{kind}/{ns}/{name}"
    return [
        Route("GET", f"{repo}/xet-write-token/{{rev}}", xet.write_token),
        Route("GET", f"{repo}/xet-read-token/{{rev}}", xet_downloads.read_token),
        Route("GET", f"{cas}/v1/reconstructions/{{hash}}", xet_downloads.reconstruction, own_token=True),
        Route("GET", f"{cas}/v2/reconstructions/{{hash}}", xet_downloads.reconstruction_by_link, own_token=True),
        Route("GET", f"{cas}/xorbs/{{hash}}", xet_downloads.get_xorb, own_token=True),
        Route("GET", f"{cas}/v1/chunks/{{prefix}}/{{hash}}", xet.no_chunk, own_token=True),
        Route("POST", f"{cas}/v1/xorb-grants/{{prefix}}/{{hash}}", xet.no_grant, own_token=True),
        Route("POST", f"{cas}/v1/xorbs/{{prefix}}/{{hash}}", xet.put_xorb, xet.XORB_LIMIT, own_token=True),
        Route("POST", f"{cas}/v1/shards", xet.put_shard, xet.SHARD_LIMIT, own_token=True),
        Route("POST", f"{cas}/v2/shards", xet.put_shard_streaming, xet.SHARD_LIMIT, own_token=True),
        Route("POST", "/v1/telemetry", xet.telemetry, own_token=True),
    ]


def _file_routes() -> list[Route]:
    found = []
    for repo in ("/{kind}/{ns}/{name}", "/{ns}/{name}"):
        objects = f"{repo}.git/info/lfs/objects"
        found += [
            Route("POST", f"{objects}/batch", api_files.lfs_batch),
            Route("POST", f"{objects}/verify", api_files.lfs_verify),
            Route("PUT", f"{objects}/{{oid}}/content/{{size}}", api_files.lfs_put, None),
            Route("PUT", f"{objects}/{{oid}}/parts/{{upload}}/{{part}}", api_files.lfs_put_part, None),
            Route("POST", f"{objects}/{{oid}}/complete/{{upload}}/{{size}}", api_files.lfs_complete),
            Route("GET", f"{objects}/{{oid}}", api_files.lfs_get),
            *(
                Route("GET", f"{repo}{suffix}/{path}", handler)
                for suffix in (".git", "")
                for path, handler in (
                    ("info/refs", git_http.info_refs),
                    ("HEAD", git_http.head),
                    ("objects/info/packs", git_http.packs),
                    ("objects/{object*}", git_http.git_object),
                )
            ),
            Route("GET", f"{repo}/resolve/{{rev}}/{{path*}}", api_files.resolve),
            Route("GET", f"{repo}/raw/{{rev}}/{{path*}}", api_files.raw),
        ]
    return found


def _page_routes() -> list[Route]:
    found = [
        Route("GET", "/", pages.index),
        Route("GET", "/{kind}", pages.index),
        Route("GET", "/-/style.css", pages.style),
    ]
    for repo in ("/{kind}/{ns}/{name}", "/{ns}/{name}"):
        found += [
            Route("GET", repo, pages.repo_page),
            Route("GET", f"{repo}/tree/{{rev}}", pages.tree),
            Route("GET", f"{repo}/tree/{{rev}}/{{path*}}", pages.tree),
            Route("GET", f"{repo}/blob/{{rev}}/{{path*}}", pages.blob),
            Route("GET", f"{repo}/commits/{{rev}}", pages.history),
            Route("GET", f"{repo}/commit/{{rev}}", pages.commit_page),
            Route("GET", f"{repo}/discussions", pages.discussion_list),
            Route("GET", f"{repo}/discussions/{{num}}", pages.discussion),
            Route("POST", f"{repo}/discussions/{{num}}/{{action}}", pages.act),
        ]
    return [*found, Route("GET", "/{ns}", pages.owner)]


class App:
    """The ASGI application.

    Args:
        store: What the Hub keeps.
        hosts: Host names, beside loopback's, under which it may be called.
        limiter: Counts requests.
        run_jobs: Whether users may have commands run.
    """

    def __init__(
        self, store: Store, hosts: tuple[str, ...] = (), limiter: Limiter | None = None, run_jobs: bool = False
    ) -> None:
        self.store = store
        self.signer = Signer(secrets.token_bytes(32))
        self.faults = Faults()
        self.session = secrets.token_hex(32)
        self.jobs = Jobs(store.folder / "jobs", run_jobs)
        self._webhooks = Webhooks(store)
        self._exchange = Exchange()
        self._limiter = limiter or Limiter({})
        self._hosts = {*_LOOPBACK, *hosts}
        self._router = Router(routes())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or fail at it as a fault demands."""
        if scope["type"] != "http":
            raise RuntimeError(f"The embedded Hub speaks HTTP, not {scope['type']}")
        raw_path = scope["raw_path"].decode("ascii", "replace")
        fault = None if raw_path == FAULTS_PATH else self.faults.strike(scope["method"], raw_path)
        kind = fault.kind if fault else ""
        if fault and kind == "delay":
            await asyncio.sleep(fault.seconds)
        if kind == "close":
            await read_to_the_end(receive)
        if kind in ("reset", "close"):
            await hang_up(scope, receive, reset=kind == "reset")
            return
        try:
            response = own_answer(fault) if fault and kind == "status" else await self._answer(Request(scope, receive))
        except HubError as error:
            response = self._refusal(scope, error)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            response = self._refusal(scope, HubError(500, "The embedded Hub failed; its log says why"))
        self._add_headers(response)
        log.info("%s %s %d %s", scope["method"], scope["path"], response.status_code, kind)
        if kind == "lost":
            await hang_up(scope, receive, reset=False)
        elif fault and kind in ("truncate", "corrupt"):
            await send_damaged(fault, response, scope, receive, send)
        else:
            await response(scope, receive, send)

    @staticmethod
    def _refusal(scope: Scope, error: HubError) -> Response:
        """Return a page to a browser and JSON to a client."""
        is_page = not scope["path"].startswith(("/api/", "/cas/"))
        if is_page and "text/html" in Headers(scope=scope).get("accept", ""):
            return pages.error_page(error)
        return error_answer(error)

    @staticmethod
    def _add_headers(response: Response) -> None:
        response.headers["Date"] = formatdate(usegmt=True)
        response.headers["X-Request-Id"] = secrets.token_hex(8)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        response.headers.setdefault("Referrer-Policy", "same-origin")

    async def _answer(self, request: Request) -> Response:
        host = request.headers.get("host", "")
        self._check_host(host)
        raw_path = request.scope["raw_path"].decode("ascii", "replace")
        try:
            route, parameters = self._router.find(request.method, raw_path)
            query = parse_qs(request.url.query, keep_blank_values=True, max_num_fields=2000)
        except ValueError as error:
            raise HubError(400, "The address is not readable") from error
        user = None if route.own_token else self._user(request)
        rate = self._limiter.count(user.name if user else str(request.client and request.client.host), raw_path)
        call = Call(
            store=self.store,
            signer=self.signer,
            faults=self.faults,
            request=request,
            user=user,
            parameters=parameters,
            query=query,
            base=f"http://{host}",
            body=await read_body(request, route.limit) if route.limit is not None else io.BytesIO(),
            session=self.session,
            webhooks=self._webhooks,
            jobs=self.jobs,
            exchange=self._exchange,
        )
        with call.body:
            response = await answer(route, call)
        self._webhooks.tell(call.events)
        response.headers.update(rate)
        return response

    def _check_host(self, host: str) -> None:
        """Refuse other names than loopback's: a page that has its own name point here must get nothing.

        Raises:
            HubError: 421 otherwise.
        """
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        if name.lower() not in self._hosts:
            raise HubError(421, "The embedded Hub answers only to loopback names")

    def _user(self, request: Request) -> User | None:
        header = request.headers.get("authorization", "")
        scheme, _, value = header.partition(" ")
        if not header:
            cookie = request.cookies.get(session_cookie(f"http://{request.headers.get('host', '')}"), "")
            # A browser that was given a page sees what the page's user sees; writing takes a form, or a token.
            good = hmac.compare_digest(cookie.encode(), self.session.encode())
            return User(self.store.local_user.name, "read") if good else None
        value = value.strip()
        if scheme.lower() == "basic":
            # git sends a user name and a password; the password is the token.
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except ValueError:
                value = ""
        elif scheme.lower() != "bearer":
            value = ""
        if not value:
            raise HubError(401, "Authorization is Bearer and a token")
        return self._exchange.bearer(value) or self.store.bearer(value)
