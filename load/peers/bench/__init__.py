"""Engines beside each other: servers, loads, measurements, reports."""
