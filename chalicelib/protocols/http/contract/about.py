"""What the service says about itself."""

from __future__ import annotations

from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import Json, answer, string

_SCHEMAS: Json = {
    "Health": answer("How the service is.", {"status": string("It answers, and so does its store.", const="ok")}),
    "Document": answer(
        "An OpenAPI document.",
        {
            "openapi": string("The version of OpenAPI."),
            "info": {"type": "object", "description": "Title, version and conventions."},
            "paths": {"type": "object", "description": "Every operation."},
        },
    ),
}

ABOUT = Family(
    "About",
    "What the service says about itself.",
    _SCHEMAS,
    (
        Operation(
            "get",
            "/health",
            "getHealth",
            "Ask whether the service works",
            "Asks the store too.",
            {200: ("It works.", Body("Health", {"status": "ok"}))},
        ),
        Operation(
            "get",
            "/openapi.json",
            "getOpenapi",
            "Get this document",
            "Needs no store.",
            {
                200: (
                    "This document.",
                    Body("Document", {"openapi": "3.1.0", "info": {"title": "Decant"}, "paths": {}}),
                )
            },
            asks_store=False,
        ),
    ),
)
