"""The prompts of the language model, whose next tokens are the labels."""

from typing import Any

TOPICS = (
    *("atheism", "graphics", "Windows", "hardware", "Mac", "X", "sale"),
    *("cars", "motorcycles", "baseball", "hockey", "encryption", "electronics", "medicine"),
    *("space", "Christianity", "guns", "Middle", "politics", "religion"),
)
EMOTIONS = (
    *("admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion"),
    *("curiosity", "desire", "disappointment", "disapproval", "disgust", "embarrassment", "excitement"),
    *("fear", "gratitude", "grief", "joy", "love", "nervousness", "optimism"),
    *("pride", "realization", "relief", "remorse", "sadness", "surprise", "neutral"),
)
SENTIMENT = ("negative", "positive")
YES_OR_NO = ("no", "yes")  # the labels 0 and 1
# The words of the labels, the prompt that the word goes on, and the user's turn of the chat.
PROMPTS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "tweet_emotion": (
        ("anger", "joy", "optimism", "sadness"),
        "Tweet: {text}\nThe emotion of this tweet (anger, joy, optimism, or sadness) is",
        "Which emotion does this tweet express: anger, joy, optimism, or sadness?\n\n{text}\n\nAnswer with one word.",
    ),
    "tweet_irony": (
        YES_OR_NO,
        "Tweet: {text}\nIs this tweet ironic, yes or no? Answer:",
        "Is this tweet ironic?\n\n{text}\n\nAnswer yes or no.",
    ),
    "tweet_offensive": (
        YES_OR_NO,
        "Tweet: {text}\nIs this tweet offensive, yes or no? Answer:",
        "Is this tweet offensive?\n\n{text}\n\nAnswer yes or no.",
    ),
    "sst": (
        SENTIMENT,
        "Review: {text}\nThe sentiment of this review is",
        "Is the sentiment of this film review negative or positive?\n\n{text}\n\nAnswer with one word.",
    ),
    "sst5": (
        ("terrible", "bad", "okay", "good", "great"),
        "Review: {text}\nIn one word, the film was",
        "Was the film terrible, bad, okay, good, or great, says this review?\n\n{text}\n\nAnswer with one word.",
    ),
    "custrev": (
        SENTIMENT,
        "Review: {text}\nThe sentiment of this review is",
        "Is the sentiment of this product review negative or positive?\n\n{text}\n\nAnswer with one word.",
    ),
    "mpqa": (
        SENTIMENT,
        'The sentiment of the phrase "{text}" is',
        "Is the sentiment of this phrase negative or positive?\n\n{text}\n\nAnswer with one word.",
    ),
    "trec_qa": (
        YES_OR_NO,
        "Question: {text}\nSentence: {pair}\nDoes the sentence answer the question, yes or no? Answer:",
        "Does the sentence answer the question?\n\nQuestion: {text}\nSentence: {pair}\n\nAnswer yes or no.",
    ),
    "newsgroups": (
        TOPICS,
        "Message: {text}\nThe topic of this message, in one word, is",
        f"Which is the topic of this message: {', '.join(TOPICS)}?\n\n{{text}}\n\nAnswer with one word.",
    ),
    "goemotions": (
        EMOTIONS,
        "Comment: {text}\nThe emotion of this comment, in one word, is",
        "Which emotion does this comment express?\n\n{text}\n\nAnswer with one word.",
    ),
}
SUM_PROMPTS = {  # the names of these tasks' labels go on
    "banking77": "Message to a bank: {text}\nThe customer's intent is:",
    "clinc150": "Message to an assistant: {text}\nThe user's intent is:",
}


def label_prompt(tokenizer: Any, task: str, kind: str) -> tuple[str, list[int]]:
    """Return the prompt of a kind, "plain" or "chat", and the first token of each label after it.

    A plain prompt goes on with a word after a space. The answer in a chat begins with the word.
    """
    words, prompt, turn = PROMPTS[task]
    if kind == "chat":
        turns = [{"role": "user", "content": turn}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    else:
        words = tuple(f" {word}" for word in words)
    first = [ids[0] for ids in tokenizer(list(words), add_special_tokens=False)["input_ids"]]
    if len(set(first)) < len(first):
        raise ValueError(f"the first tokens of the labels must all be different, got {words}")
    return prompt, first


def filled(prompt: str, text: str, pair: str = "") -> str:
    """Put a text and its pair into a prompt, whatever they contain."""
    return prompt.replace("{text}", "\0").replace("{pair}", pair).replace("\0", text)
