"""What every gRPC server and every monitored one offers, judged by the libraries that consume it."""

import urllib.request

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.openmetrics.parser import text_string_to_metric_families


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
    with urllib.request.urlopen(f"http://{server.address}/metrics") as page:
        assert page.headers["content-type"].startswith("application/openmetrics-text")
        families = {family.name: family for family in text_string_to_metric_families(page.read().decode())}
    purchases = {sample.labels["outcome"]: sample.value for sample in families["quire_purchases"].samples}
    assert purchases["bought"] == 1
    assert all(family.documentation for family in families.values())
