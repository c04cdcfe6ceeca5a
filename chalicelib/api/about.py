"""Health, and the OpenAPI document."""

from __future__ import annotations

from chalicelib.api.operation import Family, Json
from chalicelib.base.fields import Answer
from chalicelib.base.schema import mapping, string
from chalicelib.service import Service

ABOUT = Family("About", __doc__)


class Health(Answer):
    """The service works.

    status: The service answers, and so does its store."""

    status = string(const="ok")


@ABOUT.operation("GET", "/health", "anyone", Health)
def get_health(service: Service) -> Json:
    """Check that the service works.

    Reads from the store too."""
    service.admin.topics.page(1, None)
    return {"status": "ok"}


class Document(Answer):
    """This document.

    openapi: The version of OpenAPI.
    info: Title, version and conventions.
    paths: Every operation."""

    openapi = string(examples=["3.1.0"])
    info = mapping(examples=[{"title": "Decant"}])
    paths = mapping(examples=[{}])


@ABOUT.operation("GET", "/openapi.json", "read", Document, asks_store=False, is_filtered=True)
def get_openapi() -> Json:
    """Get this document.

    Needs no store."""
    raise NotImplementedError("the protocol that it describes answers it")
