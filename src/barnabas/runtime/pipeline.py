"""The request pipeline: every request, from a client, another node or the simulator, takes these steps in this order.

    header -> session -> decode -> authorise -> quota -> handle -> encode -> account

A ``Session`` belongs to one connection. It remembers the header of its last Produce or Fetch, so that the next one with
the same header needs no header decoding. Produce also has a fast path per session: a request whose prefix equals that
of one that took all steps is answered without decoding. It passes the same checks: its knowledge is discarded when the
ACLs change, and its requests are charged to the quota and accounted for.

Nothing here blocks or knows sockets: a handler answers at once, or parks the request and calls ``Request.reply``
later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from barnabas.model.ports import Clock
from barnabas.model.session import Outlet, Refused
from barnabas.wire import codec, header
from barnabas.wire.decoders import Reader
from barnabas.wire.error_codes import errors_in
from barnabas.wire.schema import DecodeError, EncodeError, Message

FETCH_KEY = 1
API_VERSIONS_KEY = 18
BEFORE_AUTHENTICATION = frozenset({17, API_VERSIONS_KEY, 36})
"""SaslHandshake, ApiVersions, SaslAuthenticate."""

Handle = Callable[["Request", Any], Message | None]
"""Answers at once with a response, or returns None and calls ``Request.reply`` later."""


class FastPath(Protocol):
    """Answers requests that begin like one it has learnt. Belongs to one session and one version of the API."""

    error_code: int
    """Of the last answer."""

    def learn(self, frame: memoryview, body: int, stop: int, message: Any) -> None:
        """A request that has been decoded and authorised."""

    def answer(self, frame: memoryview, body: int, stop: int, correlation_id: int) -> bytes | None:
        """The framed reply; None, with nothing done, where the request has to take all steps."""


class Loaded(NamedTuple):
    request: type[Message]
    handle: Handle
    fast_path: Callable[[int], FastPath | None] = lambda _version: None
    """Makes the fast path of a version."""


class Api:
    """One API as it is served. Its messages and its handler are imported with the first request."""

    def __init__(
        self,
        *,
        key: int,
        name: str,
        min_version: int,
        max_version: int,
        load: Callable[[], Loaded],
        is_pipelined: bool = False,
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.is_pipelined = is_pipelined
        """Requests behind one of these that is parked are still handled."""
        self.counters = Counters()
        self._load = load
        self._loaded: Loaded | None = None

    @property
    def loaded(self) -> Loaded:
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded


class Counters:
    """Of one API, since the start."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "handled_ns", "parked_ns", "refused", "requests", "throttled_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.refused = 0
        """Requests that could not be decoded or were not allowed on their connection."""
        self.errors: dict[int, int] = {}
        """How often each error code was answered; one response can hold several."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.handled_ns = 0
        """Spent in handlers."""
        self.parked_ns = 0
        """Between the end of a handler and a reply that came later."""
        self.throttled_ms = 0

    def count_errors(self, codes: list[int]) -> None:
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


class Authoriser(Protocol):
    generation: int
    """Changes with the rules: what was allowed before has to be asked again."""

    def refusal(self, request: Request, message: Any) -> Message | None:
        """The response that refuses the request as a whole; None lets it pass."""


class Quota(Protocol):
    def charge(self, session: Session, api_key: int, size_bytes: int) -> int:
        """Counts a request; returns for how many milliseconds the client is to be throttled."""


class AllowAll:
    generation = 0

    def refusal(self, request: Request, message: Any) -> Message | None:
        return None


class Unlimited:
    def charge(self, session: Session, api_key: int, size_bytes: int) -> int:
        return 0


class Request:
    """One request in flight, as handlers see it."""

    __slots__ = (
        "_parked_at_ns",
        "abandoned",
        "api",
        "chunks",
        "client_id",
        "correlation_id",
        "overtaken",
        "session",
        "size",
        "throttle_ms",
        "version",
    )

    def __init__(self, session: Session, api: Api, version: int, correlation_id: int, client_id: str | None) -> None:
        self.session = session
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.chunks: list[Any] | None = None
        self.size = 0
        self.throttle_ms = 0
        self.abandoned: Callable[[], object] | None = None
        """Set by a handler that parks the request: called when the client goes before it is answered."""
        self.overtaken: Callable[[], object] | None = None
        """Set by a handler that parks the request though it could answer: called when the next one waits behind it."""
        self._parked_at_ns = 0

    @property
    def listener(self) -> str:
        return self.session.listener

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def client_software(self) -> str:
        return self.session.software[0]

    @property
    def is_pipelined(self) -> bool:
        return self.api.is_pipelined

    def introduce(self, software_name: str, software_version: str) -> None:
        """The client has said which library it is (KIP-511)."""
        self.session.software = (software_name, software_version)

    def reply(self, response: Message) -> None:
        """Answers a parked request, from anywhere on the loop."""
        if self.chunks is None and self.session.outlet.is_open:
            self.session.encode(self, response)
            self.session.outlet.on_reply(self)

    def no_reply(self) -> None:
        """The client expects nothing (acks=0)."""
        self.chunks = []

    def close(self) -> None:
        """Ends the connection: the only way to tell a client that expects no answer of an error."""
        self.session.outlet.close()

    def abandon(self) -> None:
        if self.abandoned is not None:
            self.abandoned()

    def overtake(self) -> None:
        if self.overtaken is not None:
            self.overtaken()

    def park(self, now_ns: int) -> None:
        self._parked_at_ns = now_ns

    def parked_ns(self, now_ns: int) -> int:
        return now_ns - self._parked_at_ns if self._parked_at_ns else 0


class Pipeline:
    """The steps, and what they share between all sessions of a listener."""

    def __init__(
        self,
        apis: Mapping[int, Api],
        clock: Clock,
        *,
        authoriser: Authoriser | None = None,
        quota: Quota | None = None,
        report: Callable[..., None],
    ) -> None:
        self.apis = apis
        self.clock = clock
        self.authoriser: Authoriser = authoriser or AllowAll()
        self.quota: Quota = quota or Unlimited()
        self.report = report

    def open(self, outlet: Outlet, listener: str, client_host: str) -> Session:
        return Session(self, outlet, listener, client_host)


class _Familiar(NamedTuple):
    """What the last request for data was."""

    beginning: header.Beginning
    size: int
    api: Api
    version: int
    client_id: str | None
    read: Reader
    fast_path: FastPath | None
    generation: int
    """Of the authoriser."""


class _Place(NamedTuple):
    """Where a request is: its frame, and in it where the request and its body begin and end."""

    frame: memoryview
    start: int
    body: int
    stop: int


class Session:
    def __init__(self, pipeline: Pipeline, outlet: Outlet, listener: str, client_host: str) -> None:
        self.outlet = outlet
        self.listener = listener
        self.client_host = client_host
        self.software = ("unknown", "unknown")
        """Name and version of the client's library, from ApiVersions (KIP-511)."""
        self.is_authenticated = True
        """Always on listeners without authentication."""
        self._pipeline = pipeline
        self._familiar: _Familiar | None = None

    # Header and session

    def receive(self, frame: memoryview, start: int, stop: int) -> Request | bytes | None:
        familiar = self._familiar
        if familiar is not None and stop - start >= familiar.size:
            correlation_id = familiar.beginning.correlation_id(frame, start)
            if correlation_id is not None:
                return self._receive_familiar(familiar, frame, start, stop, correlation_id)
        return self._receive_new(frame, start, stop)

    def _receive_familiar(
        self, familiar: _Familiar, frame: memoryview, start: int, stop: int, correlation_id: int
    ) -> Request | bytes | None:
        pipeline, api = self._pipeline, familiar.api
        if familiar.generation != pipeline.authoriser.generation:
            self._familiar = None
            return self._receive_new(frame, start, stop)
        body = start + familiar.size
        fast_path = familiar.fast_path
        throttle_ms = None if fast_path is None else pipeline.quota.charge(self, api.key, stop - start)
        if fast_path is not None and not throttle_ms:
            began_ns = pipeline.clock.monotonic_ns()
            try:
                reply = fast_path.answer(frame, body, stop, correlation_id)
            except Exception as problem:
                self._report(Request(self, api, familiar.version, correlation_id, familiar.client_id), problem)
                return None
            if reply is not None:
                counters = api.counters
                counters.requests += 1
                counters.bytes_in += stop - start
                counters.bytes_out += len(reply)
                counters.handled_ns += pipeline.clock.monotonic_ns() - began_ns
                if fast_path.error_code:
                    counters.count_errors([fast_path.error_code])
                return reply
        request = Request(self, api, familiar.version, correlation_id, familiar.client_id)
        return self._decode(request, familiar.read, _Place(frame, start, body, stop), fast_path, throttle_ms)

    def _receive_new(self, frame: memoryview, start: int, stop: int) -> Request | None:
        try:
            key, version, correlation_id, client_id, body = header.decode_request_header(frame, start, stop)
        except DecodeError as problem:
            raise Refused(f"a request header that cannot be read: {problem}") from problem
        api = self._find(key, version)
        if not api.min_version <= version <= api.max_version:
            # An unknown version of ApiVersions is answered in version 0 with error 35, so that any client can learn.
            return self._perform(Request(self, api, 0, correlation_id, client_id), None, stop - start, None)
        loaded = api.loaded
        read = codec.reader(loaded.request, version)
        fast_path = None
        if key <= FETCH_KEY:
            fast_path = loaded.fast_path(version)
            beginning = header.Beginning(frame, start, body)
            generation = self._pipeline.authoriser.generation
            self._familiar = _Familiar(beginning, body - start, api, version, client_id, read, fast_path, generation)
        request = Request(self, api, version, correlation_id, client_id)
        return self._decode(request, read, _Place(frame, start, body, stop), fast_path, None)

    def _find(self, key: int, version: int) -> Api:
        api = self._pipeline.apis.get(key)
        if api is None:
            raise Refused(f"API key {key} version {version}, which is not served")
        if not api.min_version <= version <= api.max_version and key != API_VERSIONS_KEY:
            api.counters.refused += 1
            raise Refused(f"{api.name} version {version}, which is not served")
        if not self.is_authenticated and key not in BEFORE_AUTHENTICATION:
            api.counters.refused += 1
            raise Refused(f"{api.name} before authentication")
        return api

    # Decode, authorise, handle

    def _decode(
        self, request: Request, read: Reader, place: _Place, fast_path: FastPath | None, throttle_ms: int | None
    ) -> Request | None:
        """``throttle_ms`` is None where the request is not charged to the quota yet."""
        frame, start, body, stop = place
        try:
            message, _ = read(frame, body, stop)
        except DecodeError as problem:
            request.api.counters.refused += 1
            raise Refused(f"a malformed {request.api.name} request version {request.version}: {problem}") from problem

        def learn() -> None:
            if fast_path is not None:
                fast_path.learn(frame, body, stop, message)

        return self._perform(request, message, stop - start, throttle_ms, learn)

    def _perform(
        self,
        request: Request,
        message: Any,
        size_bytes: int,
        throttle_ms: int | None,
        learn: Callable[[], None] = lambda: None,
    ) -> Request | None:
        pipeline = self._pipeline
        clock, counters = pipeline.clock, request.api.counters
        counters.requests += 1
        counters.bytes_in += size_bytes
        began_ns = clock.monotonic_ns()
        try:
            response = pipeline.authoriser.refusal(request, message)
            if throttle_ms is None:
                throttle_ms = pipeline.quota.charge(self, request.api.key, size_bytes)
            request.throttle_ms = throttle_ms
            if response is None:
                learn()
                response = request.api.loaded.handle(request, message)
        except Exception as problem:
            self._report(request, problem)
            return None
        now_ns = clock.monotonic_ns()
        counters.handled_ns += now_ns - began_ns
        if response is not None:
            self.encode(request, response)
        elif request.chunks is None:
            request.park(now_ns)
        return request

    def _report(self, request: Request, problem: Exception) -> None:
        self._pipeline.report(
            "request failed",
            api=request.api.name,
            version=request.version,
            client=request.client_id,
            peer=self.client_host,
            exc_info=problem,
        )

    # Encode, account

    def encode(self, request: Request, response: Message) -> None:
        counters = request.api.counters
        if request.throttle_ms:
            counters.throttled_ms += request.throttle_ms
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = request.throttle_ms
        try:
            chunks = header.frame_response(response, request.version, request.correlation_id)
        except EncodeError as problem:
            self._report(request, problem)
            self.outlet.close()
            return
        request.chunks = chunks
        request.size = len(chunks[0]) if len(chunks) == 1 else codec.size(chunks)  # type: ignore[arg-type]
        counters.bytes_out += request.size
        counters.parked_ns += request.parked_ns(self._pipeline.clock.monotonic_ns())
        counters.count_errors(errors_in(response))
