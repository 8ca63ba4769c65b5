"""What every gRPC server and every monitored one offers, judged by the libraries that consume it."""

import os
import pathlib

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def test_health_is_told_for_the_server_and_for_each_service(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", "bookstore.BookStore", "bookstore.Admin"]:
        reply = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING, service


def test_health_watchers_are_told_at_once(channel):
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


def test_reflection_gives_every_service_with_its_messages(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {"bookstore.BookStore", "bookstore.Admin", "grpc.health.v1.Health"} <= set(database.get_services())
    service = DescriptorPool(database).FindServiceByName("bookstore.BookStore")
    methods = {method.name: (method.input_type.name, method.output_type.name) for method in service.methods}
    assert methods == {
        "Hello": ("HelloRequest", "HelloReply"),
        "Search": ("BookTopicRequest", "BookListReply"),
        "SearchStream": ("BookTopicRequest", "BookListReply"),
        "ListTopics": ("ListTopicsRequest", "ListTopicsReply"),
        "Lookup": ("ItemNumberRequest", "BookInfoReply"),
        "Buy": ("ItemNumberRequest", "BuyBookReply"),
    }


def test_the_contract_is_a_part_of_what_is_served(channel, contract):
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    for name, message in contract[0].DESCRIPTOR.message_types_by_name.items():
        served = pool.FindMessageTypeByName(f"bookstore.{name}")
        for field in message.fields:
            ours = served.fields_by_name[field.name]
            shape = (field.number, field.type, field.is_repeated)
            assert (ours.number, ours.type, ours.is_repeated) == shape, field.full_name


def test_metrics_are_what_prometheus_reads(server, contract, channel):
    contract[1].BookStoreStub(channel).Buy(contract[0].ItemNumberRequest(id=7))
    families = server.metrics()
    purchases = {sample.labels["outcome"]: sample.value for sample in families["quire_purchases"].samples}
    assert purchases["bought"] == 1
    assert all(family.documentation for family in families.values())


def test_the_duration_of_calls_is_a_histogram_that_prometheus_reads(server, contract, channel):
    shop = contract[1].BookStoreStub(channel)
    for _ in range(5):
        shop.Buy(contract[0].ItemNumberRequest(id=53477))
    families = server.metrics()
    durations = families["quire_grpc_call_duration_seconds"]
    assert (durations.type, durations.unit) == ("histogram", "seconds")
    samples = [sample for sample in durations.samples if sample.labels["method"] == "/bookstore.BookStore/Buy"]
    buckets = {float(sample.labels["le"]): sample.value for sample in samples if sample.name.endswith("_bucket")}
    assert sorted(buckets)[:4] == [1e-6, 2e-6, 5e-6, 1e-5] and sorted(buckets)[-2:] == [10, float("inf")]
    assert buckets[float("inf")] == 5
    # The parser refuses buckets that shrink; the sum is bounded by those that are filled.
    total = next(sample.value for sample in samples if sample.name.endswith("_sum"))
    filled = min(bound for bound, count in buckets.items() if count == 5)
    assert 0 < total <= 5 * filled


def test_the_process_is_described_under_the_usual_names(server):
    families = server.metrics()
    kinds = {name: family.type for name, family in families.items() if name.startswith("process_")}
    assert kinds == {
        "process_cpu_seconds": "counter", "process_resident_memory_bytes": "gauge", "process_open_fds": "gauge",
        "process_max_fds": "gauge", "process_start_time_seconds": "gauge",
    }
    # The operating system's own account of the same process, in clock ticks.
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    told = families["process_cpu_seconds"].samples[0]
    assert told.name == "process_cpu_seconds_total"
    assert abs(told.value - ticks) < 0.5
