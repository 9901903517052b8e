#!/usr/bin/env python3
"""Trims a GeoNames cities500 dump to the table that Remora ships.

usage: trim_places.py cities500.txt places.tsv.xz

Same input, same bytes: the order is total (population descending, then id),
the text is copied and not reformatted, and compression is single-threaded with
fixed settings. The script stops at the first row that it cannot vouch for.
Only Python's standard library is used.
"""

import hashlib
import lzma
import sys
import unicodedata

MIN_POPULATION = 1000
MIN_PLACES = 50_000
MAX_COMPRESSED_BYTES = 4 << 20

# Output column -> field of the dump (docs: GeoNames' readme, table "geoname").
COLUMNS = [
    ("geonameid", 0),
    ("name", 1),
    ("country", 8),
    ("latitude", 4),
    ("longitude", 5),
    ("population", 14),
    ("feature", 7),
    ("timezone", 17),
]
FIELDS = 19


def fail(line_number, reason):
    sys.exit(f"trim_places: line {line_number}: {reason}")


def has_control(text):
    return any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in text)


def checked(line_number, line):
    fields = line.split("\t")
    if len(fields) != FIELDS:
        fail(line_number, f"{len(fields)} fields, not {FIELDS}")
    row = {name: fields[index] for name, index in COLUMNS}
    row["population"] = row["population"] or "0"
    for name, text in row.items():
        if has_control(text):
            fail(line_number, f"{name} holds a control character or a line separator")
        if text != text.strip():
            fail(line_number, f"{name} begins or ends with white space")
    if not (row["geonameid"].isascii() and row["geonameid"].isdigit()):
        fail(line_number, "geonameid is not a number")
    if not (row["population"].isascii() and row["population"].isdigit()):
        fail(line_number, "population is not a number")
    if int(row["population"]) < MIN_POPULATION:
        return None
    country = row["country"]
    if not (len(country) == 2 and country.isascii() and country.isupper()):
        fail(line_number, f"country code {country!r}")
    for name, bound in (("latitude", 90.0), ("longitude", 180.0)):
        try:
            value = float(row[name])
        except ValueError:
            fail(line_number, f"{name} is not a number")
        if not -bound <= value <= bound:
            fail(line_number, f"{name} {value} is out of range")
    if row["latitude"] in ("0", "0.0") and row["longitude"] in ("0", "0.0"):
        fail(line_number, "coordinates 0, 0 stand for none")
    for name in ("name", "feature", "timezone"):
        if not row[name]:
            fail(line_number, f"{name} is empty")
    return row


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    rows = []
    with open(source, encoding="utf-8", newline="\n") as dump:
        for line_number, line in enumerate(dump, 1):
            row = checked(line_number, line.rstrip("\n"))
            if row is not None:
                rows.append(row)
    if len({row["geonameid"] for row in rows}) != len(rows):
        sys.exit("trim_places: an id occurs twice")
    if len(rows) < MIN_PLACES:
        sys.exit(f"trim_places: only {len(rows)} places")
    rows.sort(key=lambda row: (-int(row["population"]), int(row["geonameid"])))

    names = [name for name, _ in COLUMNS]
    lines = ["\t".join(names)] + ["\t".join(row[name] for name in names) for row in rows]
    text = ("\n".join(lines) + "\n").encode("utf-8")
    packed = lzma.compress(
        text,
        format=lzma.FORMAT_XZ,
        check=lzma.CHECK_CRC64,
        # The whole table fits the window; a larger one only costs the reader memory.
        filters=[
            {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 8 << 20}
        ],
    )
    if len(packed) > MAX_COMPRESSED_BYTES:
        sys.exit(f"trim_places: {len(packed)} bytes compressed, limit {MAX_COMPRESSED_BYTES}")
    with open(target, "wb") as out:
        out.write(packed)
    print(f"places {len(rows)}")
    print(f"bytes {len(text)} plain, {len(packed)} compressed")
    print(f"sha256 of the plain table {hashlib.sha256(text).hexdigest()}")
    print(f"sha256 of {target.rsplit('/', 1)[-1]} {hashlib.sha256(packed).hexdigest()}")


main()
