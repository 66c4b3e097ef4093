"""A client of `router.toml`: asks which model should answer each prompt, and reports quality, price and latency.

python examples/serve/router.py --url http://127.0.0.1:8000 --prompts 500

Prompts, models and their quality are simulated; put calls of your own in the place of `embedding` and `answer`.
"""

import argparse
import random
from collections import Counter

from seqdec.client import Client

DOLLARS = {"small": 0.0002, "medium": 0.002, "large": 0.01}
"""of a prompt of 1,000 tokens"""
SKILL = {"small": 0.2, "medium": 0.6, "large": 1.0}


def embedding(generator: random.Random) -> tuple[list[float], float]:
    """Of a prompt, and how difficult it is, which the first numbers show."""
    numbers = [generator.uniform(-1, 1) for _ in range(8)]
    return numbers, (numbers[0] + 1) / 2


def answer(model: str, difficulty: float, tokens: int, generator: random.Random) -> dict[str, float]:
    """What the model's answer to a prompt was worth, and what it cost."""
    quality = min(1.0, max(0.0, 1.2 + SKILL[model] - 2 * difficulty + generator.gauss(0, 0.1)))
    return {
        "quality": quality,
        "dollars": DOLLARS[model] * tokens / 1000,
        "seconds": (0.3 + SKILL[model]) * tokens / 1000,
    }


def main() -> None:
    """Route the prompts, and say which models the second half of them got."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--key", help="of the API")
    parser.add_argument("--prompts", type=int, default=500)
    options = parser.parse_args()
    generator, played = random.Random(0), {"easy": Counter(), "hard": Counter()}
    with Client(options.url, key=options.key, timeout=60) as client:
        for number in range(options.prompts):
            (prompt, difficulty), tokens = embedding(generator), generator.randint(100, 2000)
            decision = client.decide("router", {"prompt": prompt, "tokens": tokens})
            reward = answer(decision["action"], difficulty, tokens, generator)
            client.learn("router", decision["token"], reward)
            if number >= options.prompts // 2:
                played["hard" if difficulty > 0.5 else "easy"][decision["action"]] += 1
    for kind, counts in played.items():
        print(f"{kind} prompts, second half: {dict(sorted(counts.items()))}")


if __name__ == "__main__":
    main()
