"""What a process says when another one is gone."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from pcshrink.errors import CheckpointError
from pcshrink.train.together import PeerError, noticing_lost_peers

pytestmark = pytest.mark.unit

CLOSED = "[../third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:4711\nand a page"


@pytest.mark.parametrize("error", [RuntimeError(CLOSED), dist.DistStoreError("1/2 clients joined")])
def test_a_lost_connection_is_one_line(error: RuntimeError) -> None:
    said = r"gone or did not answer for 5 minutes \(train\.timeout\)"
    with pytest.raises(PeerError, match=said) as caught, noticing_lost_peers(2, 5.0):
        raise error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "processes"),
    [(RuntimeError(CLOSED), 1), (RuntimeError("shape mismatch"), 2), (CheckpointError("cannot connect"), 2)],
)
def test_other_errors_stay_as_they_are(error: Exception, processes: int) -> None:
    with pytest.raises(type(error)) as caught, noticing_lost_peers(processes, 5.0):
        raise error
    assert caught.value is error
