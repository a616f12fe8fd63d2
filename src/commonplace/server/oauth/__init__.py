"""OAuth 2.1 for clients that are elsewhere: one authorization server for all dialects."""

from commonplace.server.oauth.endpoints import routes
from commonplace.server.oauth.resources import RESOURCES, Permission, Resource, resources_of
from commonplace.server.oauth.rows import Rows
from commonplace.server.oauth.server import OAuth

__all__ = ["RESOURCES", "OAuth", "Permission", "Resource", "Rows", "resources_of", "routes"]
