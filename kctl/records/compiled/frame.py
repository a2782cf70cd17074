"""What readers and writers of whole frames have in common; mypyc compiles it: docs/decisions/native-requests.md.

`frame` is a copy, because compiled code indexes `bytes` only: it checks each index as Python does, so that no input can
make it read outside of the frame.  Positions are sums of sizes below 2**32, and so cannot overflow.  What is not usual
raises ValueError, UnicodeDecodeError among them, or IndexError.
"""

from __future__ import annotations

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64, u8


def read_header(frame: bytes, is_flexible: bool) -> tuple[i64, str, i64]:
    """Return the correlation id and the client id of a request, empty for null, and the position after the header."""
    correlation_id: i64 = i64(read_i32_be(frame, 4))
    size: i64 = i64(read_i16_be(frame, 8))
    position: i64 = 10
    client_id = ""
    if size > 0:
        client_id = read_text(frame, position, size)
        position += size
    if is_flexible:
        position = read_no_tags(frame, position)
    return correlation_id, client_id, position


def read_topic(frame: bytes, position: i64, is_flexible: bool) -> tuple[str, bytes, i64, i64]:
    """Return the name of a topic, as text and bytes, the number of its partitions, and the position after it."""
    size: i64 = 0
    if is_flexible:
        size, position = read_count(frame, position, is_flexible)
    else:
        size = i64(read_i16_be(frame, position))
        position += 2
    if size <= 0 or size > 32767:
        raise ValueError("no name")
    name = read_text(frame, position, size)
    name_bytes = frame[position : position + size]
    count, position = read_count(frame, position + size, is_flexible)
    return name, name_bytes, count, position


def read_topic_id(frame: bytes, position: i64, names: dict[bytes, str]) -> tuple[str, bytes, i64, i64]:
    """As `read_topic`, for a topic that is given by its id; `names` has the names by ids."""
    topic_id = frame[position : position + 16]
    name = names.get(topic_id)
    if name is None:
        raise ValueError("unknown topic id")
    count, position = read_count(frame, position + 16, True)
    return name, topic_id, count, position


def read_no_tags(frame: bytes, position: i64) -> i64:
    """Return the position after the tagged fields of a flexible version, of which there are none."""
    if frame[position] != 0:
        raise ValueError("tagged fields")
    return position + 1


def read_count(frame: bytes, position: i64, is_flexible: bool) -> tuple[i64, i64]:
    """Return a number of elements or bytes that is neither null nor 0, and the position after it."""
    count, position = read_count_or_none(frame, position, is_flexible)
    if count == 0:
        raise ValueError("nothing")
    return count, position


def read_count_or_none(frame: bytes, position: i64, is_flexible: bool) -> tuple[i64, i64]:
    """Return a number of elements or bytes that is not null, and the position after it."""
    count: i64 = 0
    if not is_flexible:
        count = i64(read_i32_be(frame, position))
        position += 4
    else:
        byte: i64 = frame[position]
        position += 1
        count = byte & 0x7F
        shift: i64 = 7
        while byte >= 0x80:
            if shift > 28:
                raise ValueError("a number has too many bytes")
            byte = frame[position]
            position += 1
            count |= (byte & 0x7F) << shift
            shift += 7
        count -= 1
    if count < 0:
        raise ValueError("null")
    return count, position


def read_text(frame: bytes, position: i64, size: i64) -> str:
    """Return the text of so many bytes."""
    if size > len(frame) - position:
        raise ValueError("a text exceeds the frame")
    return frame[position : position + size].decode("utf-8")


def write_header(out: BytesWriter, correlation_id: i64, is_flexible: bool) -> None:
    """Write the size, which is set in the end, and the header of a response."""
    write_i32_be(out, 0)
    write_i32_be(out, i32(correlation_id))
    if is_flexible:
        out.append(0)


def write_size(out: BytesWriter, size: i64) -> None:
    """Set the size of a frame, which does not count the size itself."""
    for place in range(4):
        out[place] = u8(size >> (24 - 8 * place) & 0xFF)


def write_topic(out: BytesWriter, name: bytes, count: i64, is_flexible: bool) -> None:
    """Write the name of a topic and the number of its partitions."""
    if is_flexible:
        write_count(out, len(name), is_flexible)
    else:
        write_i16_be(out, i16(len(name)))
    out.write(name)
    write_count(out, count, is_flexible)


def write_topic_id(out: BytesWriter, topic_id: bytes, count: i64) -> None:
    """Write the id of a topic and the number of its partitions."""
    out.write(topic_id)
    write_count(out, count, True)


def write_count(out: BytesWriter, count: i64, is_flexible: bool) -> None:
    """Write a number of elements or bytes, -1 for null."""
    if not is_flexible:
        write_i32_be(out, i32(count))
        return
    left: i64 = count + 1
    while left >= 0x80:
        out.append(u8(left & 0x7F | 0x80))
        left >>= 7
    out.append(u8(left))
