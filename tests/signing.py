"""Web tokens for tests."""

import functools
import json

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

SECRET = b"a secret of thirty-two bytes, no fewer"
NOW_S = 1_700_000_000


def hs256(secret=SECRET, headers=None, **claims):
    claims = {"sub": "alice", "exp": NOW_S + 100, **claims}
    return jwt.encode({name: value for name, value in claims.items() if value is not ...}, secret, "HS256", headers)


@functools.cache
def rsa_key(number=0):
    return rsa.generate_private_key(65537, 2048)


def rs256(number=0, kid="one", **claims):
    return jwt.encode(
        {"sub": "alice", "exp": NOW_S + 100, **claims}, rsa_key(number), "RS256", {"kid": kid} if kid else None
    )


def jwk(number=0, **members):
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(number).public_key()))
    return {**key, "kid": "one", "use": "sig", **members}


def jwks(*keys):
    return json.dumps({"keys": list(keys)}).encode()
