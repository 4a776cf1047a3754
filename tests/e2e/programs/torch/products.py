"""Products of vectors, of a matrix and a vector, and of batches of matrices, in the element types that PyTorch hands to cuBLAS. Prints what it called."""
import torch

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
SIZE, BATCH = 256, 8

for kind in TYPES:
    vector = torch.empty(SIZE, device="cuda", dtype=kind)
    matrix = torch.empty(SIZE, 2 * SIZE, device="cuda", dtype=kind)
    batch = torch.empty(BATCH, SIZE, SIZE, device="cuda", dtype=kind)
    torch.dot(vector, vector)
    torch.mv(matrix.t(), vector)
    matrix.t() @ matrix
    torch.bmm(batch, batch.transpose(1, 2))
    torch.baddbmm(batch, batch, batch)
    print(kind)
    if kind.is_complex:
        torch.vdot(vector, vector)
torch.cuda.synchronize()
