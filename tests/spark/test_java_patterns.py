"""Patterns of ``subscribePattern`` find what Java's own regular expressions find."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.java_pattern import java_pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ["a", "b.1", "aa", "ab", "AB", "a.b", "a-b_1", "1", "_", "test-A"]
PIECES = r"""
a b A 1 _ - \. . \d \w \W \D \s \b \B [a-c] [^a-c] [\w.] [\d_-] \p{Alpha} \P{Alpha} [\p{Upper}1] \pN
\Qa.b\E \Q[\E [\Qa-\E] [^\p{Lower}] [\p{Punct}] ^ $ \A \z \Z (a|b) (?:a|1) (?=b) (?!b) (?<=a) (?<!a)
(?<n>a) \1 \k<n> (?i) (?i:a) (?s) []a] [^]a] [a-c&&b] [a[b]] [\]] [a-] \x61 \u0061 \- \_ \t \h \R \e
\0141 ] } { a{2} a{1,} a{,2} | #
"""
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "*?", "??", "{2}", "{0,1}", "*+", "?+"]


def test_what_is_accepted_finds_the_same_topics(spark: SparkSession) -> None:
    chance, pieces = random.Random(1), PIECES.split()
    java = spark.sparkContext._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    compared = 0
    for _ in range(400):
        pattern = "".join(
            chance.choice(pieces) + chance.choice(QUANTIFIERS) for _ in range(chance.randint(1, 4))
        )
        try:
            translated = re.compile(java_pattern("subscribePattern", pattern), re.ASCII)
        except OptionError:
            continue
        try:
            compiled = java.compile(pattern)
        except Py4JJavaError as e:
            raise AssertionError(f"Java refuses {pattern!r}, which was accepted") from e
        found = [topic for topic in TOPICS if translated.search(topic)]
        assert found == [topic for topic in TOPICS if compiled.matcher(topic).find()], pattern
        compared += 1
    assert compared > 150
