"""`replay` on Spark, with tasks that are tried again."""

from pyspark import TaskContext

from tests.pipeline.test_replay import expected, is_whole, options, source
from towline.pipeline import replay as job
from towline.pipeline.copying import Copied, Lane, send_lane
from towline.pipeline.progress import Progress

__all__ = ["source"]


def test_a_task_that_is_tried_again_adds_nothing(spark, node, source, monkeypatch):
    """Its first attempt sends everything and fails."""

    def fails_once(lane: Lane) -> Copied:
        done = send_lane(lane)
        context = TaskContext.get()
        assert context is not None
        if not context.attemptNumber():
            raise RuntimeError(f"{done.sent} messages were sent")
        return done

    asked = options(node, source, "replayed", tasks=2)
    monkeypatch.setattr(job, "send_lane", fails_once)
    result = job.run(spark, asked, Progress())
    assert (result.summary["sent"], result.summary["there"]) == (0, len(expected(source)))
    is_whole(node, "replayed", expected(source))
