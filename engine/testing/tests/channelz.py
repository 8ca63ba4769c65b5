"""gRPC's own stubs of channelz, on the interoperability server with a call in flight.

Usage: channelz.py ADDRESS
"""

import queue
import sys

import grpc
from google.protobuf import descriptor_pb2
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

TEST = "/grpc.testing.TestService/"


def fields(message, scope=""):
    """Every field and value of a message and those within it."""
    name = f"{scope}.{message.name}"
    oneofs = [oneof.name for oneof in message.oneof_decl]
    for field in message.field:
        oneof = oneofs[field.oneof_index] if field.HasField("oneof_index") else None
        yield name, field.name, field.number, field.type, field.type_name, field.label, oneof
    for kind in message.enum_type:
        yield from ((f"{name}.{kind.name}", value.name, value.number) for value in kind.value)
    for inner in message.nested_type:
        yield from fields(inner, name)


def contract(file):
    """What two files must have in common."""
    methods = {(method.name, method.input_type, method.output_type, method.client_streaming, method.server_streaming)
               for service in file.service for method in service.method}
    return methods | {entry for message in file.message_type for entry in fields(message)}


def code(call, request):
    """The code that a call fails with."""
    try:
        call(request, timeout=10)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def main(address):
    """Reads everything that the server shows."""
    with grpc.insecure_channel(address) as channel:
        requests = queue.SimpleQueue()
        flying = channel.stream_stream(f"{TEST}FullDuplexCall")(iter(requests.get, None))
        # StreamingOutputCallRequest, for one answer of a byte.
        requests.put(b"\x12\x02\x08\x01")
        next(flying)
        assert channel.unary_unary(f"{TEST}EmptyCall")(b"") == b""
        assert code(channel.unary_unary(f"{TEST}UnimplementedCall"), b"") == grpc.StatusCode.UNIMPLEMENTED

        stub = channelz_pb2_grpc.ChannelzStub(channel)
        listed = stub.GetServers(channelz_pb2.GetServersRequest())
        assert listed.end and [server.ref.name for server in listed.server] == ["interop"], listed
        server_id = listed.server[0].ref.server_id
        data = stub.GetServer(channelz_pb2.GetServerRequest(server_id=server_id)).server.data
        ended = data.calls_succeeded + data.calls_failed
        assert data.calls_succeeded >= 2 and data.calls_failed == 1 and data.calls_started == ended + 1, data

        sockets = stub.GetServerSockets(channelz_pb2.GetServerSocketsRequest(server_id=server_id))
        assert sockets.end and len(sockets.socket_ref) == 1, sockets
        socket = stub.GetSocket(channelz_pb2.GetSocketRequest(socket_id=sockets.socket_ref[0].socket_id)).socket
        assert socket.local.tcpip_address.port == int(address.rsplit(":", 1)[1]), socket
        assert socket.remote.tcpip_address.ip_address == bytes([127, 0, 0, 1]), socket
        assert socket.data.streams_started >= 5, socket

        channels = stub.GetTopChannels(channelz_pb2.GetTopChannelsRequest())
        assert channels.end and not channels.channel, channels
        for call, request in [
            (stub.GetServer, channelz_pb2.GetServerRequest(server_id=1 << 40)),
            (stub.GetServerSockets, channelz_pb2.GetServerSocketsRequest(server_id=1 << 40)),
            (stub.GetSocket, channelz_pb2.GetSocketRequest(socket_id=server_id)),
            (stub.GetChannel, channelz_pb2.GetChannelRequest(channel_id=1)),
            (stub.GetSubchannel, channelz_pb2.GetSubchannelRequest(subchannel_id=1)),
        ]:
            assert code(call, request) == grpc.StatusCode.NOT_FOUND, request
        requests.put(None)
        assert not list(flying)

        own = descriptor_pb2.FileDescriptorProto()
        channelz_pb2.DESCRIPTOR.CopyToProto(own)
        theirs = ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol("grpc.channelz.v1.Channelz")
        assert contract(own) == contract(theirs), contract(own) ^ contract(theirs)


main(sys.argv[1])
