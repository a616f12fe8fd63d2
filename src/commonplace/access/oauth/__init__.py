"""OAuth 2.1 for remote clients: one authorization server for all dialects."""

from commonplace.access.oauth.endpoints import routes
from commonplace.access.oauth.rows import MacRows
from commonplace.access.oauth.server import OAuth
from commonplace.access.oauth.signing_in import SignIn

__all__ = ["MacRows", "OAuth", "SignIn", "routes"]
