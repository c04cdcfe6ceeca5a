"""What Chalice deploys. Routes live in `chalicelib.protocols.http`; event handlers would be declared here."""

from chalicelib.protocols.http.application import application

app = application()
