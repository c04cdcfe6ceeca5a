"""The Chalice application, with the contract's answer to a method that a path does not know."""

from __future__ import annotations

from typing import Any

from chalice.app import Chalice

from chalicelib.errors import MethodNotAllowed
from chalicelib.protocols.http import problems
from chalicelib.protocols.http.routes import routes


class Application(Chalice):
    def __call__(self, event: Any, context: Any) -> Any:
        about = event.get("requestContext", {}) if isinstance(event, dict) else {}
        known = self.routes.get(about.get("resourcePath", ""))
        if known is None or about["httpMethod"] in known:
            return super().__call__(event, context)
        allowed = ", ".join(sorted(known))
        error = MethodNotAllowed(f"{about['httpMethod']} is not allowed here; allowed are {allowed}")
        answer = problems.response(error)
        answer.headers["Allow"] = allowed
        return answer.to_dict(self.api.binary_types)


def application() -> Application:
    app = Application(app_name="decant")
    app.register_blueprint(routes)
    return app
