"""The settings of an instance, from the environment.

`DECANT_STORE` ("dynamodb", or within this process "memory"), `DECANT_TABLE`, `DECANT_BUCKET` (for payloads too big for
items), `DECANT_SIGNING_KEY` (at least 16 characters) or `DECANT_SIGNING_KEY_FROM` (where several are kept: "ssm:<name>"
or "secretsmanager:<ARN>"; without either a key is made once and kept in the table), `DECANT_EXPORT_BUCKET` (where the
table is exported every day; without it, it is not), `DECANT_PUSH_FUNCTION` (the function that runs the push),
`DECANT_STACK` (in Lambda: the stack of the stage, without which no function works), `DECANT_LOG` ("json" or "off":
whether each call writes a log line; "json" is the default in Lambda), `DECANT_ACCESS` ("tokens", "iam" or "none": who
lets callers in), `DECANT_FUNCTION_ACCESS` ("iam", or "tokens": who invokes a function shows a token too),
`DECANT_HOOKS` (a module that registers hooks),
`DECANT_ACCOUNT` (12 digits, which the URLs and ARNs of SQS queues have), `DECANT_MQ_INSTANCE` (which clients of MQ over
HTTP must name), `DECANT_INGEST` and `DECANT_INGEST_REJECTS` (what the records of event sources become, and the topic of
those that cannot be stored), and what boto3 reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from chalicelib.api import Demand
from chalicelib.core.base.errors import Internal
from chalicelib.core.base.runtime import system
from chalicelib.core.catalogue.signing_key import KEY_CHARS_MIN, Configured, ConfiguredKeys

TABLE_DEFAULT = "decant"
WITHOUT_STAGE = (
    "this function is of no stage, as DECANT_STACK is not set: `chalice deploy` cannot deploy Decant; run "
    "`chalice delete`, then `make deploy STAGE=dev` (docs/deploying.md)"
)


class Settings:
    """Each property reads its variable, checks it, and raises ValueError, which never shows a key."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    @classmethod
    def from_env(cls) -> Settings:
        """The settings of this process, as they are when they are read."""
        return cls(os.environ)

    def check_stage(self) -> None:
        """Raises Internal in a function of Lambda that is of no stage: `chalice deploy` makes such functions, without
        settings or rights. The templates of stages set `DECANT_STACK` for every function."""
        if self.is_deployed and not self.stack:
            raise Internal(WITHOUT_STAGE)

    # -- where it runs ------------------------------------------------------------------------------------------------

    @property
    def is_deployed(self) -> bool:
        return "AWS_LAMBDA_FUNCTION_NAME" in self.environ

    @property
    def is_in_chalice(self) -> bool:
        """Whether a command of Chalice imports the application: to package it, or to serve it here."""
        return self.environ.get("AWS_CHALICE_CLI_MODE") == "true"

    @property
    def stack(self) -> str | None:
        return self.environ.get("DECANT_STACK")

    @property
    def region(self) -> str | None:
        """The region of the deployment, which Lambda tells. None: this machine is in none."""
        return self.environ.get("AWS_REGION") if self.is_deployed else None

    @property
    def is_logging(self) -> bool:
        """Whether each call writes a log line: in Lambda, unless it is switched off."""
        chosen = self.environ.get("DECANT_LOG", "json" if self.is_deployed else "off")
        if chosen not in ("json", "off"):
            raise ValueError(f"DECANT_LOG must be json or off; it is {chosen!r}")
        return chosen == "json"

    # -- the store ----------------------------------------------------------------------------------------------------

    @property
    def store_kind(self) -> str:
        kinds = ["dynamodb"] if self.is_deployed else ["dynamodb", "memory"]
        return self._choice("DECANT_STORE", kinds, "dynamodb")

    @property
    def table(self) -> str:
        return self.environ.get("DECANT_TABLE", TABLE_DEFAULT)

    @property
    def bucket(self) -> str | None:
        return self.environ.get("DECANT_BUCKET") or None

    @property
    def export_bucket(self) -> str | None:
        return self.environ.get("DECANT_EXPORT_BUCKET") or None

    @property
    def has_endpoint(self) -> bool:
        """Whether DynamoDB is an emulator, or a VPC endpoint."""
        return "AWS_ENDPOINT_URL_DYNAMODB" in self.environ

    # -- callers ------------------------------------------------------------------------------------------------------

    @property
    def demand(self) -> Demand:
        """The callers that have to show a token. A deployed stage that does not say so is never open by accident."""
        access = self._choice("DECANT_ACCESS", ("tokens", "iam", "none"), None if self.is_deployed else "none")
        functions = self._choice("DECANT_FUNCTION_ACCESS", ("iam", "tokens"), "iam")
        if functions == "tokens" and access != "tokens":
            raise ValueError(f"DECANT_FUNCTION_ACCESS can be 'tokens' only where DECANT_ACCESS is; that is {access!r}")
        return Demand(access == "tokens", functions == "tokens", access == "iam")

    @property
    def signing_key(self) -> Configured:
        place, key = self.environ.get("DECANT_SIGNING_KEY_FROM"), self.environ.get("DECANT_SIGNING_KEY")
        if place and key:
            raise ValueError("DECANT_SIGNING_KEY and DECANT_SIGNING_KEY_FROM cannot both be set")
        if place:
            return _configured_keys(place)
        if key is not None and len(key) < KEY_CHARS_MIN:
            raise ValueError(f"DECANT_SIGNING_KEY must have at least {KEY_CHARS_MIN} characters")
        return key.encode() if key else None

    @property
    def has_access_keys(self) -> bool:
        """Not where the signing key is in DynamoDB's table, which exports and backups hold as well."""
        return self.signing_key is not None or self.store_kind != "dynamodb"

    @property
    def hooks(self) -> str | None:
        """The module that registers hooks."""
        return self.environ.get("DECANT_HOOKS") or None

    # -- doors --------------------------------------------------------------------------------------------------------

    @property
    def account(self) -> str | None:
        """The account in the URLs and ARNs of SQS queues."""
        chosen = self.environ.get("DECANT_ACCOUNT")
        if chosen is not None and not re.fullmatch("[0-9]{12}", chosen):
            raise ValueError(f"DECANT_ACCOUNT must be twelve digits; it is {chosen!r}")
        return chosen

    @property
    def mq_instance(self) -> str | None:
        """The instance that clients of MQ over HTTP must name. None: any, or none."""
        return self.environ.get("DECANT_MQ_INSTANCE") or None

    @property
    def ingest_rules(self) -> str | None:
        return self.environ.get("DECANT_INGEST")

    @property
    def ingest_rejects(self) -> str | None:
        return self.environ.get("DECANT_INGEST_REJECTS") or None

    @property
    def push_function(self) -> str | None:
        """The name of the function that runs the push. None: only the schedule runs it."""
        return self.environ.get("DECANT_PUSH_FUNCTION")

    def _choice(self, name: str, choices: Sequence[str], default: str | None) -> str:
        chosen = self.environ.get(name, default)
        if chosen is None or chosen not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}; it is {chosen!r}")
        return chosen


def _configured_keys(place: str) -> ConfiguredKeys:
    from chalicelib.core.store.dynamodb.boto import SECRET_SERVICES, secret_text_at

    service, _, name = place.partition(":")
    if service not in SECRET_SERVICES or not name:
        raise ValueError("DECANT_SIGNING_KEY_FROM must be ssm:<name> or secretsmanager:<name or ARN>")
    return ConfiguredKeys("DECANT_SIGNING_KEY_FROM", lambda: secret_text_at(place), system())
