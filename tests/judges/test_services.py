"""Health, reflection and metrics, judged by the libraries that consume them."""

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICES = ["bookstore.BookStore", "bookstore.Admin", "io.grpc.KeyValueService", "io.grpc.KeyRangeService", "RPCGame", "RPCGameStream"]


def test_health_is_serving_for_the_server_and_for_each_service(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", *SERVICES]:
        reply = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING, service
    watch = health.Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


@pytest.mark.parametrize("file", ["bookstore.proto", "kv.proto", "records.proto", "rpcgame.proto"])
def test_what_existing_clients_know_is_a_part_of_what_reflection_serves(channel, file):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {*SERVICES, "grpc.health.v1.Health"} <= set(database.get_services())
    pool, known = DescriptorPool(database), grpc.protos(file).DESCRIPTOR
    for service in known.services_by_name.values():
        served = pool.FindServiceByName(service.full_name)
        for method in service.methods:
            ours = served.methods_by_name[method.name]
            assert (ours.input_type.full_name, ours.output_type.full_name) == (method.input_type.full_name, method.output_type.full_name)
    for message in known.message_types_by_name.values():
        served = pool.FindMessageTypeByName(message.full_name)
        for field in message.fields:
            ours = served.fields_by_name[field.name]
            assert (ours.number, ours.type, ours.is_repeated) == (field.number, field.type, field.is_repeated), field.full_name


def test_metrics_are_what_prometheus_reads(server, contract, channel):
    shop = contract[1].BookStoreStub(channel)
    for _ in range(5):
        shop.Buy(contract[0].ItemNumberRequest(id=53477))
    families = server.metrics()
    assert all(family.documentation for family in families.values())
    purchases = {sample.labels["outcome"]: sample.value for sample in families["quire_purchases"].samples}
    assert purchases["bought"] == 5
    durations = families["quire_grpc_call_duration_seconds"]
    assert (durations.type, durations.unit) == ("histogram", "seconds")
    # The parser refuses buckets that shrink.
    counts = {sample.name: sample.value for sample in durations.samples if sample.labels["method"] == "/bookstore.BookStore/Buy"}
    assert counts["quire_grpc_call_duration_seconds_count"] == 5
    kinds = {name: family.type for name, family in families.items() if name.startswith("process_")}
    assert kinds == {
        "process_cpu_seconds": "counter", "process_resident_memory_bytes": "gauge", "process_open_fds": "gauge",
        "process_max_fds": "gauge", "process_start_time_seconds": "gauge",
    }
