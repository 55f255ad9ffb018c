"""Facts about the blocking client. What it calls is that of the async one."""

import inspect

import pytest

from tailrace.client.asynchronous import AsyncClient
from tailrace.client.blocking import Client, Subscription
from tailrace.client.subscription import AsyncSubscription

INNER = {"create_for_table", "create_for_query", "poll_for", "core", "release"}
"""What the clients use of each other."""


@pytest.mark.parametrize(
    ("async_class", "blocking_class"),
    [(AsyncClient, Client), (AsyncSubscription, Subscription)],
    ids=["client", "handle"],
)
def test_both_clients_have_the_same_methods_with_the_same_parameters(async_class, blocking_class):
    methods = {name for name in vars_of(async_class) if name not in INNER}
    assert methods == vars_of(blocking_class)
    for name in methods:
        one, other = getattr(async_class, name), getattr(blocking_class, name)
        if not isinstance(one, property):
            assert parameters(one) == parameters(other), name


def vars_of(kind):
    names = {name for parent in kind.__mro__[:-1] for name in vars(parent)}
    return {name for name in names if not name.startswith("_")}


def parameters(method):
    return [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]


def test_a_client_that_was_closed_can_be_closed_again():
    client = Client("http://127.0.0.1:1")
    client.disconnect()
    client.disconnect()
