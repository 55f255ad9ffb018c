"""What we use of other libraries beyond what they promise, by name: an upgrade that changes it fails here."""

import asyncio
import inspect
import tomllib
from pathlib import Path

import pytest
import uvicorn
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

HTTP_METHODS = {
    "_start_asgi_task": ["cycle", "app"],
    "_unset_keepalive_if_required": [],
    "connection_lost": ["exc"],
    "connection_made": ["transport"],
    "data_received": ["data"],
    "handle_websocket_upgrade": [],
    "on_body": ["body"],
    "on_header": ["name", "value"],
    "on_headers_complete": [],
    "on_message_begin": [],
    "on_message_complete": [],
    "on_response_complete": [],
    "pause_writing": [],
    "resume_writing": [],
    "send_400_response": ["msg"],
    "timeout_keep_alive_handler": [],
}
HTTP_ATTRIBUTES = [
    "cycle",
    "flow",
    "headers",
    "logger",
    "loop",
    "pipeline",
    "timeout_keep_alive",
    "timeout_keep_alive_task",
    "transport",
]
WS_METHODS = {
    "data_received": ["data"],
    "handle_connect": ["event"],
    "handle_parser_exception": [],
    "handle_ping": [],
    "keepalive_timeout": [],
    "send": ["message"],
    "send_receive_event_to_app": [],
}
WS_ATTRIBUTES = [
    "close_sent",
    "conn",
    "curr_msg_data_type",
    "disconnected",
    "frames",
    "handshake_complete",
    "handshake_initiated",
    "logger",
    "loop",
    "transport",
    "writable",
]
CONN_ATTRIBUTES = ["debug", "fail", "handshake_exc", "logger", "max_message_size", "state"]
H2_ATTRIBUTES = [
    "decoder",
    "encoder",
    "highest_inbound_stream_id",
    "local_settings",
    "max_inbound_frame_size",
    "max_outbound_frame_size",
    "outbound_flow_control_window",
    "state_machine",
    "streams",
]


async def nothing(scope, receive, send):
    pass


def made(kind):
    config = uvicorn.Config(nothing, lifespan="off", log_config=None)
    config.load()
    return kind(config=config, server_state=ServerState(), app_state={}, _loop=asyncio.get_running_loop())


@pytest.mark.parametrize(
    ("kind", "methods"),
    [(HttpToolsProtocol, HTTP_METHODS), (WebSocketsSansIOProtocol, WS_METHODS)],
    ids=["http", "websocket"],
)
def test_the_methods_of_uvicorn_that_we_override_are_as_they_were(kind, methods):
    found = {name: list(inspect.signature(getattr(kind, name)).parameters)[1:] for name in methods}
    assert found == methods


@pytest.mark.parametrize(
    ("kind", "names"),
    [(HttpToolsProtocol, HTTP_ATTRIBUTES), (WebSocketsSansIOProtocol, WS_ATTRIBUTES)],
    ids=["http", "websocket"],
)
async def test_the_attributes_of_uvicorn_that_we_use_are_there(kind, names):
    protocol = made(kind)
    assert [name for name in names if not hasattr(protocol, name)] == []
    if kind is WebSocketsSansIOProtocol:
        assert [name for name in CONN_ATTRIBUTES if not hasattr(protocol.conn, name)] == []


def test_the_server_of_uvicorn_has_what_we_replace():
    server = uvicorn.Server(uvicorn.Config(nothing, log_config=None))
    assert list(inspect.signature(server.startup).parameters) == ["sockets"]
    assert not server.started
    assert not server.should_exit
    assert server.server_state.connections == set()
    assert hasattr(server, "capture_signals")
    source = inspect.getsource(uvicorn.Server)
    assert "self.servers" in source
    assert "self.lifespan" in source


def test_the_connection_of_h2_has_what_we_use():
    connection = H2Connection(H2Configuration(client_side=False))
    assert [name for name in H2_ATTRIBUTES if not hasattr(connection, name)] == []
    assert isinstance(connection.state_machine.state, ConnectionState)
    assert hasattr(ConnectionState, "SERVER_OPEN")
    assert hasattr(connection.decoder, "max_header_list_size")
    assert hasattr(connection.encoder, "header_table_size")


def test_libraries_whose_private_parts_we_use_have_an_upper_bound():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    wanted = {"h2", "uvicorn", "websockets"}
    capped = {line.split(">")[0] for line in project["project"]["dependencies"] if "<" in line}
    assert wanted <= capped
