"""An inference loop that replays one CUDA graph for each batch:

    python samples/torch/graphed_inference.py
"""
import torch

from common import finish, transformer

REQUESTS = 50
BATCH, LENGTH, WIDTH = 8, 128, 256

model = transformer(4, WIDTH).cuda().half().eval()
inputs = torch.zeros(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.half)

with torch.inference_mode():
    warm_up = torch.cuda.Stream()
    with torch.cuda.stream(warm_up):
        for _ in range(3):
            model(inputs)
    torch.cuda.current_stream().wait_stream(warm_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = model(inputs)

    answers = 0
    for _ in range(REQUESTS):
        inputs.copy_(torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.half).pin_memory(), non_blocking=True)
        graph.replay()
        answers += len(outputs.cpu())
print(f"{answers} answers")
finish(REQUESTS)
