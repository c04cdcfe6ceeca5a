"""The Chalice application, with the contract's answers to a path and to a method that there is not."""

from __future__ import annotations

from typing import Any

from chalice.app import Chalice

from chalicelib.base.errors import DecantError, MethodNotAllowed, NotFound
from chalicelib.base.fields import quoted
from chalicelib.protocols.http import problems
from chalicelib.protocols.http.routes import routes


class Application(Chalice):
    def __call__(self, event: Any, context: Any) -> Any:
        about = event.get("requestContext", {}) if isinstance(event, dict) else {}
        known = self.routes.get(about.get("resourcePath", ""))
        if known is None:
            return super().__call__(event, context)
        if _has_slash_too_many(about.get("path", "")):
            return self._refused(NotFound(f"there is no path {quoted(about['path'])}"))
        if about["httpMethod"] in known:
            return super().__call__(event, context)
        allowed = ", ".join(sorted(known))
        error = MethodNotAllowed(f"{about['httpMethod']} is not allowed here; allowed are {allowed}")
        return self._refused(error, Allow=allowed)

    def _refused(self, error: DecantError, **headers: str) -> Any:
        answer = problems.response(error)
        answer.headers.update(headers)
        return answer.to_dict(self.api.binary_types)


def _has_slash_too_many(path: str) -> bool:
    """API Gateway, and Chalice in its place, route such a path as if it had none: every resource would have aliases."""
    return path.endswith("/") or "//" in path


def application() -> Application:
    app = Application(app_name="decant")
    app.register_blueprint(routes)
    return app
