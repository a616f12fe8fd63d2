"""The groups of methods of the library's public class: links, facts, clusters and others."""

from __future__ import annotations

from commonplace.engine.binding import Part, method
from commonplace.engine.content import artifacts, clusters, conversations, events, facts, links
from commonplace.engine.history import timeline


class History(Part):
    """Operations, and former versions of memories."""

    operations = method(timeline.operations)
    versions = method(timeline.versions)


class Links(Part):
    """Relations between memories."""

    add = method(links.link)
    get = method(links.get_link)
    revise = method(links.revise_link)
    remove = method(links.unlink)
    of = method(links.links)
    around = method(links.links_around)
    neighbours = method(links.neighbours)
    traverse = method(links.traverse)
    components = method(links.components)


class Facts(Part):
    """Facts: subject, predicate and object, with the period in which they are true."""

    add = method(facts.add)
    close = method(facts.close)
    retract = method(facts.retract)
    query = method(facts.query)
    timeline = method(facts.timeline)
    totals = method(facts.totals)


class Clusters(Part):
    """Named groups of memories."""

    create = method(clusters.create)
    get = method(clusters.get)
    all = method(clusters.listing)
    revise = method(clusters.revise)
    delete = method(clusters.delete)
    add = method(clusters.add)
    remove = method(clusters.remove)
    move = method(clusters.move)
    refresh = method(clusters.refresh)
    members = method(clusters.members)
    sizes = method(clusters.sizes)
    homes = method(clusters.homes)
    of = method(clusters.of_memory)


class Artifacts(Part):
    """Documents with versions and reviews."""

    create = method(artifacts.create)
    update = method(artifacts.update)
    get = method(artifacts.get)
    read = method(artifacts.read)
    versions = method(artifacts.versions)
    all = method(artifacts.listing)
    delete = method(artifacts.delete)
    review = method(artifacts.review)
    reviews = method(artifacts.reviews)


class Conversations(Part):
    """Messages with a speaker, a session and an order."""

    add = method(conversations.add)
    history = method(conversations.history)
    find = method(conversations.find)
    of = method(conversations.of_memory)
    window = method(conversations.window)
    names = method(conversations.names)


class Events(Part):
    """An append-only log of events."""

    record = method(events.record)
    all = method(events.listing)
    count = method(events.count)
