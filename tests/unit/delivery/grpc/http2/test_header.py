"""Headers of gRPC calls."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.http2.header import (
    NotGrpcError,
    metadata_headers,
    percent_encoded,
    read_request,
    status_headers,
)

GOOD = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": b"/a.B/C",
    b":authority": b"x",
    b"content-type": b"application/grpc",
    b"te": b"trailers",
}


def request(**changed):
    fields = GOOD | {name.replace("__", ":").replace("_", "-").encode(): value for name, value in changed.items()}
    return read_request((name, value) for name, value in fields.items() if value is not None)


def test_a_request_is_its_path_and_what_the_client_adds():
    read = request(x_tenant=b"t", user_agent=b"me", grpc_timeout=b"20m", grpc_trace=b"1")
    assert (read.path, read.timeout_s, read.encoding) == ("/a.B/C", 0.02, "identity")
    assert list(read.metadata) == [("x-tenant", "t"), ("user-agent", "me")]


@pytest.mark.parametrize("kind", [b"application/grpc", b"application/grpc+proto", b"application/grpc; charset=x"])
def test_content_types_of_grpc_are_taken(kind):
    assert request(content_type=kind).path == "/a.B/C"


@pytest.mark.parametrize("kind", [None, b"application/json", b"application/grpc-web", b"application/grpc+json"])
def test_other_content_types_are_not(kind):
    with pytest.raises(NotGrpcError) as caught:
        request(content_type=kind)
    assert caught.value.status == 415


def test_only_posts_are_calls():
    with pytest.raises(NotGrpcError) as caught:
        request(__method=b"GET")
    assert caught.value.status == 405


@pytest.mark.parametrize(
    ("text", "timeout_s"), [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 4e-3), (b"5u", 5e-6), (b"99999999n", 0.1)]
)
def test_a_timeout_has_a_unit(text, timeout_s):
    assert request(grpc_timeout=text).timeout_s == pytest.approx(timeout_s)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"te": None}, StatusCode.INTERNAL),
        ({"grpc_timeout": b"1"}, StatusCode.INVALID_ARGUMENT),
        ({"grpc_timeout": b"999999999S"}, StatusCode.INVALID_ARGUMENT),
        ({"grpc_timeout": b"-1S"}, StatusCode.INVALID_ARGUMENT),
        ({"grpc_encoding": b"snappy"}, StatusCode.UNIMPLEMENTED),
        ({"x_bin": b"*"}, StatusCode.INVALID_ARGUMENT),
    ],
)
def test_what_is_wrong_has_its_status(changed, code):
    with pytest.raises(StatusError) as caught:
        request(**changed)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("text", "values"), [(b"AAE", [b"\0\1"]), (b"AAE=", [b"\0\1"]), (b"AAE,Ag==", [b"\0\1", b"\2"]), (b"", [b""])]
)
def test_binary_metadata_is_base64_with_or_without_padding(text, values):
    assert list(request(x_bin=text).metadata) == [("x-bin", value) for value in values]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("x-text"), st.from_regex(r"[ -~]*", fullmatch=True)),
            st.tuples(st.just("x-bin"), st.binary()),
        )
    )
)
def test_metadata_comes_back_as_it_was_sent(metadata):
    assert list(read_request([*GOOD.items(), *metadata_headers(metadata)]).metadata) == metadata


@pytest.mark.parametrize(
    "metadata",
    [
        ("X-Upper", "a"),
        ("x y", "a"),
        (":path", "a"),
        ("grpc-status", "0"),
        ("x-text", "line\r\nbreak"),
        ("x-text", "é"),
        ("x-text", b"bytes"),
        ("x-bin", "text"),
    ],
)
def test_metadata_that_a_header_cannot_carry_is_refused(metadata):
    with pytest.raises(ValueError, match="metadata"):
        metadata_headers([metadata])


def test_details_of_a_status_may_be_sent():
    assert metadata_headers([("grpc-status-details-bin", b"\0")]) == [(b"grpc-status-details-bin", b"AA")]


@given(st.text(max_size=200))
def test_a_message_comes_back_from_its_encoding(text):
    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote(encoded.decode()) == text.encode("utf-8", "replace").decode()


def test_a_long_message_is_cut_between_characters():
    encoded = percent_encoded("é" * 10_000)
    assert 4000 < len(encoded) <= 4096
    assert set(unquote(encoded.decode())) == {"é"}


def test_a_status_without_a_message_is_its_code():
    assert status_headers(StatusCode.OK, "", ()) == [(b"grpc-status", b"0")]
    assert status_headers(StatusCode.INTERNAL, "a%b", [("x", "y")]) == [
        (b"grpc-status", b"13"),
        (b"grpc-message", b"a%25b"),
        (b"x", b"y"),
    ]
