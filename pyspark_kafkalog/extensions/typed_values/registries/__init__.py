"""The schema registries with an API of their own, and where each one's serializers put the keys of schemas.

``wire.py`` finds these keys in values and headers. Each of ``glue.py``, ``apicurio.py`` and ``azure.py`` asks
one registry for schemas by them, as :class:`.contract.SchemaSource` says.
"""
