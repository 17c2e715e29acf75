"""CSV files of generated texts, with labels in words."""

import csv

from papers.data.generated_topics import generate_topics


def write_csv(path, size, seed, before=""):
    topics = generate_topics(size, seed=seed, num_topics=3)
    names = topics.features["label"].names
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["body", "topic"])
        writer.writerows(
            [before + text, names[label]] for text, label in zip(topics["text"], topics["label"], strict=True)
        )
    return path
