"""One rank of ``tests/kernels/test_global.py``: RANK RANKS MEETING_POINT. Prints a line of JSON per job."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch.distributed as dist

import kernel_interpreter
import losspool
from kernel_cases import labels_of, logits_of
from losspool import _calls

rank, ranks, meeting_point = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CUTS = [0, 1, 4]
exchanges = 0


def counting(group):
    exchange = original(group)

    def counted(*found):
        global exchanges
        exchanges += 1
        return exchange(*found)

    return counted


original, _calls.exchanger = _calls.exchanger, counting


def mine(whole, cuts):
    return whole.detach()[cuts[rank] : cuts[rank + 1]].clone()


def compare(job, function, whole, labels, cuts=CUTS, **options):
    """Loss and gradient of this rank's part of the batch, against one process with the whole batch in float64."""
    global exchanges
    exchanges, stats = 0, losspool.PoolingStats()
    part = mine(whole, cuts).requires_grad_()
    arguments = [] if labels is None else [mine(labels, cuts)]
    loss = function(part, *arguments, scope="global", stats=stats, **options)
    loss.backward()
    exact = whole.detach().double().requires_grad_()
    truth = function(exact, *([] if labels is None else [labels]), scope="batch", **options)
    truth.backward()
    error = abs(loss.item() / truth.item() - 1)
    if part.numel():
        wanted = ranks * exact.grad[cuts[rank] : cuts[rank + 1]]
        error = max(error, float((part.grad - wanted).abs().max() / exact.grad.abs().max() / ranks))
    bits = [value.hex() for value in (loss.item(), stats.alpha.item(), stats.tau.item())]
    print(json.dumps({"job": job, "error": error, "exchanges": exchanges, "bits": str(bits)}), flush=True)


kernel_interpreter.prepare()
dist.init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=ranks)
void = {"ignore_index": 255}
labels, coarse = labels_of((4, 5, 6)), labels_of((4, 9, 8))
compare("cross_entropy", losspool.cross_entropy, logits_of((4, 5, 5, 6)), labels, **void)
compare("upsampled", losspool.upsampled_cross_entropy, logits_of((4, 5, 3, 2)), coarse, p=1.0, m=9, **void)
compare("max_pool", losspool.max_pool, logits_of((4, 50)).detach().abs(), None, p=2.0, m=0.1)
compare("trimmed", losspool.cross_entropy, logits_of((4, 5, 5, 6)), labels, trim=0.2, **void)
labels[0] = 255
compare("void rank", losspool.cross_entropy, logits_of((4, 5, 5, 6)), labels, **void)
compare("empty rank", losspool.cross_entropy, logits_of((4, 5, 5, 6)), labels, cuts=[0, 0, 4], **void)
if rank == 1:
    labels[1, 2, 2] = 7
try:
    losspool.cross_entropy(mine(logits_of((4, 5, 5, 6)), CUTS), mine(labels, CUTS), scope="global", **void)
    refused = ""
except Exception as error:
    refused = str(error)
print(json.dumps({"job": "bad label", "refused": refused}), flush=True)
dist.destroy_process_group()
