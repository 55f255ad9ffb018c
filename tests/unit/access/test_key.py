"""Facts about API keys."""

import hashlib
import hmac

from tailrace.access.key import key_hash, looks_like_key, make_key


def test_two_keys_differ_and_look_like_keys():
    keys = {make_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(looks_like_key(key) and "." not in key for key in keys)


def test_other_words_do_not_look_like_keys():
    assert not any(map(looks_like_key, ("", "tr_", "secret", "a.b.c", "tr_" + "x" * 42, "tr_" + "x" * 44)))


def test_the_hash_is_that_of_the_contract():
    assert key_hash("k", "") == hashlib.sha256(b"k").hexdigest()
    assert key_hash("k", "pepper") == hmac.new(b"pepper", b"k", "sha256").hexdigest()


def test_any_text_has_a_hash():
    assert len(key_hash("\udcff", "")) == len(key_hash("\udcff", "p")) == 64
