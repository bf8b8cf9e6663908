"""Answers as they come, and one that is given up. usage: stream.py MODEL"""

import asyncio
import sys

from forebay import AsyncLLM, RequestOutputKind, SamplingParams


async def tell(llm: AsyncLLM, prompt: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=40, output_kind=RequestOutputKind.DELTA)
    async for output in llm.generate(prompt, params):
        for choice in output.outputs:
            print(choice.text, end="", flush=True)
    print()


async def main() -> None:
    llm = AsyncLLM(sys.argv[1])
    try:
        await tell(llm, "Once upon a time")
        try:
            async with asyncio.timeout(0.5):
                await tell(llm, "A very long story:")
        except TimeoutError:
            print("\ngiven up")
    finally:
        llm.shutdown()


asyncio.run(main())
