"""The OpenAPI document of all that is served over HTTP."""
