"""What preparing a corpus of WMT 2014's size costs: CPU time, peak memory, and disk, from files to encoded pairs.

    python -m benchmarks.speed.translation_preparation [--pairs 4500000] [--json FILE] [--folder FOLDER]

The corpus is generated: words of a Zipf distribution, whose letters are drawn too, with 25 words in a sentence on
average. WMT 2014 English to German has 4.5 million pairs, and about 25 words in a sentence. The steps are those of
`recipes/papers/translation.py` in one process, on one thread: load the files, train the byte-pair encoding, and encode
all pairs. Peak memory is that of the process so far.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common.figures import script_options, shown, write_figures
from benchmarks.common.memory import process_peak_bytes
from benchmarks.common.timing import timed

WORDS, LETTERS = 800_000, "etaoinshrdlucmfwypvbgkjqxz"
PART = 100_000  # pairs that are generated at once


def vocabulary(rng: np.random.Generator) -> pa.Array:
    """Return different words of 2 to 14 letters; frequent ones, which come first, are short."""
    lengths = np.clip(rng.poisson(np.linspace(3, 9, 2 * WORDS)) + 1, 2, 14)
    weights = 1 / np.arange(1, 27)
    letters = rng.choice(list(LETTERS), lengths.sum(), p=weights / weights.sum())
    text, ends = "".join(letters), lengths.cumsum()
    words = dict.fromkeys(text[end - size : end] for end, size in zip(ends.tolist(), lengths.tolist(), strict=True))
    return pa.array([*words][:WORDS])


def sentences(rng: np.random.Generator, words: pa.Array, count: int) -> pa.Array:
    lengths = np.clip(rng.lognormal(3.05, 0.6, count).astype(int), 1, 110)
    ranks = (len(words) ** rng.random(lengths.sum())).astype(np.int64) - 1  # of rank r with a probability near 1/r
    offsets = pa.array(np.r_[0, lengths.cumsum()], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, words.take(pa.array(ranks))), " ")


def write(path: Path, pairs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = {language: vocabulary(np.random.default_rng(number)) for number, language in enumerate(("en", "de"))}
    with pq.ParquetWriter(path, pa.schema([("en", pa.string()), ("de", pa.string())])) as file:
        for start in range(0, pairs, PART):
            count = min(PART, pairs - start)
            file.write_table(pa.table({name: sentences(rng, words[name], count) for name in ("en", "de")}))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(files: Path, cache: Path) -> dict[str, Any]:
    # Before the imports that read them: the cache of the data, and one thread in each library.
    os.environ |= {"HF_DATASETS_CACHE": str(cache), "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    import torch
    from papers.data.parallel_corpora import encode_pairs, load_parallel
    from papers.data.tokenizer_training import train_bpe_tokenizer

    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    results: dict[str, Any] = {"files": {"disk_gb": size(files) / 1e9}}

    def step(name: str, run: Callable[[], Any]) -> Any:
        result, wall, cpu = timed(run)
        sizes = {"peak_gb": process_peak_bytes() / 1e9, "cache_gb": size(cache) / 1e9}
        results[name] = {"wall_s": wall, "cpu_s": cpu, **sizes}
        return result

    names = {f"{name}_file": str(files / f"{name}.parquet") for name in ("train", "validation", "test")}
    splits = step("load", lambda: load_parallel(source_lang="en", target_lang="de", **names))

    def texts() -> Iterator[str]:
        for batch in splits["train"].iter(batch_size=10_000):
            yield from (*batch["source"], *batch["target"])

    tokenizer = step("train the encoding", lambda: train_bpe_tokenizer(texts(), 37_000, 128))
    encoded = step("encode", lambda: encode_pairs(splits["train"], tokenizer, 128, cut=False))
    tokens = [len(ids) for column in ("input_ids", "labels") for ids in encoded[:10_000][column]]
    results["encoded"] = {"pairs": len(encoded), "vocabulary": len(tokenizer), "tokens": float(np.mean(tokens))}
    return results


def main() -> None:
    parser = script_options(__doc__, threads=False)
    parser.add_argument("--pairs", type=int, default=4_500_000)
    parser.add_argument("--folder", type=Path, help="where to write the corpus and the cache [a temporary folder]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = Path(folder, "files")
        files.mkdir()
        for seed, (name, pairs) in enumerate({"train": options.pairs, "validation": 3000, "test": 3003}.items()):
            # In a process of its own, so that its memory is not counted.
            process = multiprocessing.get_context("spawn").Process(
                target=write, args=(files / f"{name}.parquet", pairs, seed)
            )
            process.start()
            process.join()
        (measured,) = shown([{"pairs": options.pairs, **measure(files, Path(folder, "cache"))}])
    write_figures(options.json, measured)


if __name__ == "__main__":
    main()
