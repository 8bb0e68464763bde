"""The codecs: round trips, refused input, and bounded decompression."""

import contextlib
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire import compression
from barnabas.wire.compression import BombError, Codec, DecompressionError, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"line %d of many\n" % number for number in range(20_000))


@given(st.sampled_from(Codec), st.binary(max_size=300), st.integers(1, 400))
def test_there_and_back(codec: Codec, piece: bytes, times: int) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("level", [None, 1, 9])
def test_levels(codec: Codec, level: int | None) -> None:
    assert decompress(codec, compress(codec, memoryview(TEXT), level), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(BombError):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_short(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000])
    borders = {16} if codec is Codec.SNAPPY else set()  # a xerial stream of no blocks is whole
    for size in set(range(len(packed))) - borders:
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:size], 1 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_trailing_garbage(codec: Codec) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec, compress(codec, TEXT) + b"garbage", 1 << 20)


@given(st.sampled_from(COMPRESSED), st.data())
def test_mutated_data_raises_typed_errors_only(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:2000]))
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecompressionError):
        assert len(decompress(codec, packed, 100_000)) <= 100_000


@given(st.sampled_from(COMPRESSED), st.binary(max_size=60))
def test_noise_raises_typed_errors_only(codec: Codec, noise: bytes) -> None:
    with contextlib.suppress(DecompressionError):
        decompress(codec, noise, 100_000)


def test_raw_and_concatenated_snappy() -> None:
    import cramjam

    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed.startswith(compression.XERIAL_MAGIC)
    assert decompress(Codec.SNAPPY, framed + framed, 1 << 20) == TEXT + TEXT


def test_lz4_frames_are_of_the_kind_that_kafka_reads() -> None:
    flags, block = compress(Codec.LZ4, TEXT)[4:6]
    assert flags == 0x60  # version 1, independent blocks, no checksums, no content size
    assert block == 0x40  # 64 KB


def test_linked_lz4_blocks_are_read_too() -> None:
    import lz4.frame

    assert decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True), len(TEXT)) == TEXT


def test_zstd_without_content_size_and_with_checksum() -> None:
    import zstandard

    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compressobj()
    packed = compressor.compress(TEXT) + compressor.flush()
    assert decompress(Codec.ZSTD, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, packed[:-1] + bytes([packed[-1] ^ 1]), len(TEXT))


def test_windows_are_bounded() -> None:
    import zstandard

    parameters = zstandard.ZstdCompressionParameters(window_log=28, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = compressor.compress(TEXT) + compressor.flush()
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, packed, len(TEXT))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_members_are_bounded(codec: Codec) -> None:
    empty, full = compress(codec, b""), compress(codec, b"data")
    assert decompress(codec, full + full, 100) == b"datadata"
    with pytest.raises(DecompressionError):
        decompress(codec, empty * 100_000, 100)


def test_libraries_are_imported_on_first_use() -> None:
    code = """
        import sys
        import barnabas.wire.records, barnabas.wire.walk
        loaded = {"lz4", "zstandard", "cramjam"} & set(sys.modules)
        assert not loaded, loaded
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


BOMB = """
    import resource, sys, zlib
    from barnabas.wire.compression import BombError, Codec, compress, decompress
    codec = Codec(int(sys.argv[1]))
    piece = bytes(1 << 24)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(piece) for _ in range(64)) + packer.flush()
    elif codec is Codec.ZSTD:
        import zstandard
        packer = zstandard.ZstdCompressor().compressobj()
        bomb = b"".join(packer.compress(piece) for _ in range(64)) + packer.flush()
    elif codec is Codec.LZ4:
        import lz4.frame
        packer = lz4.frame.LZ4FrameCompressor()
        bomb = packer.begin() + b"".join(packer.compress(piece) for _ in range(64)) + packer.flush()
    else:
        bomb = b"\\xff\\xff\\xff\\xff\\x0f" + bytes(1000)  # claims 4 GiB
        framed = b"\\x82SNAPPY\\x00" + bytes([0, 0, 0, 1] * 2) + len(bomb).to_bytes(4, "big") + bomb
        try:
            decompress(codec, framed, 1 << 20)
        except BombError:
            pass
        else:
            sys.exit("framed")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        decompress(codec, bomb, 1 << 20)
    except BombError:
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sys.exit(0 if grown < 16 << (20 if sys.platform == "darwin" else 10) else f"grew by {grown}")
    sys.exit("no error")
"""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bombs_of_a_gigabyte_cost_their_bound(codec: Codec) -> None:
    code = textwrap.dedent(BOMB)
    subprocess.run([sys.executable, "-c", code, str(int(codec))], check=True, timeout=60)
