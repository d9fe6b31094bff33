import json

import pytest

from transformer_jax.config import DataError
from transformer_jax.files.checked_json import read_log, with_crc, without_crc

RECORD = {"step": 3, "train/loss": 2.25, "rate": 1e-07, "a": None, "b": 12}


def test_a_log_is_read_up_to_what_a_kill_cut_short(tmp_path):
    file = tmp_path / "metrics.jsonl"
    for text, steps in (("", []), ('{"step": 1}\n\n{"step": 2}\n{"a', [1, 2]), ('{"step": 1}\n{"step": 2}', [1])):
        file.write_text(text)
        log = read_log(file)
        assert [record["step"] for record in log.records] == steps and not log.problems
    with pytest.raises(DataError, match="no such file"):
        read_log(tmp_path / "nowhere")


LINES = [b"[1]", b"3", b'{"a": 1}', b'{"a', b'{"step": "1"}', b"\xff\xfe{", b"[" * 100_000, b'{"step": %d}' % 10**400]
LINES += [b'{"step": 2, "a": %s}' % value for value in (b'"text"', b"[1]", b"%d" % 10**400, b"true")]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_no_record_is_named_and_the_others_are_read(tmp_path, line):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    log = read_log(file)
    assert [record["step"] for record in log.records] == [1, 3]
    assert len(log.problems) == 1 and "metrics.jsonl, line 2: not a record" in log.problems[0]


def test_every_flipped_bit_is_noticed_or_changes_nothing():
    line = json.dumps(with_crc(RECORD)).encode()
    noticed = 0
    for position in range(8 * len(line)):
        changed = bytearray(line)
        changed[position // 8] ^= 1 << position % 8
        try:
            assert without_crc(json.loads(changed)).items() >= RECORD.items(), changed
        except ValueError:
            noticed += 1
    assert noticed > 7 * len(line)


def test_files_of_earlier_versions_have_no_crc():
    assert without_crc(RECORD) == RECORD == without_crc(with_crc(RECORD))
