"""Passes connections on, late: the far end of a link whose packets take 0.1 s, and of which one in twenty is sent again after a second. Usage: slow_tunnel.py PORT HOST:PORT."""
import asyncio
import random
import sys

PIECE = 64 << 10


async def flow(reader, writer):
    try:
        while piece := await reader.read(PIECE):
            await asyncio.sleep(1 if random.random() < 0.05 else 0.1)
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def pass_on(reader, writer):
    host, port = sys.argv[2].split(":")
    try:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
    except OSError:
        writer.close()
        return
    await asyncio.gather(flow(reader, far_writer), flow(far_reader, writer))


async def main():
    server = await asyncio.start_server(pass_on, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()

random.seed(1)
asyncio.run(main())
