"""The file from which an interrupted call continues."""

from hf_focal.choices.score_file import ScoredBatch, ScoreFile


def test_a_line_that_was_not_completely_written_is_cut_off(tmp_path):
    file = ScoreFile(tmp_path / "new" / "scores.jsonl")
    batches = [ScoredBatch([2, 0], [[0.5, -1.0], [0.1, 0.2]]), ScoredBatch([1], [[0.0, 1e-300]])]
    assert file.finished() == []
    for batch in batches:
        file.append(batch)
    assert file.finished() == batches
    whole = file.path.read_text()
    assert whole.splitlines()[0] == '{"rows": [2, 0], "scores": [[0.5, -1.0], [0.1, 0.2]]}'
    file.path.write_text(whole + '{"rows": [3], "sc')
    assert file.finished() == batches and file.path.read_text() == whole


def test_the_order_of_the_keys_does_not_matter(tmp_path):
    (tmp_path / "scores.jsonl").write_text('{"scores": [[0.5]], "rows": [7]}\n')
    assert ScoreFile(tmp_path / "scores.jsonl").finished() == [ScoredBatch([7], [[0.5]])]
