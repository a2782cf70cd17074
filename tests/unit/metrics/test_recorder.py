"""What is recorded of requests."""

from __future__ import annotations

from kctl.errors import ErrorCode
from kctl.metrics.definitions import SAMPLES_MAX
from kctl.protocol.apis.api_versions import ApiVersionsResponse
from kctl.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kctl.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.recorder import ConnectionTiming, Measuring, RequestRecorder

PEER = Peer("/127.0.0.1", "PLAINTEXT")
VERSION = 3


class Times:
    """A clock that advances with each reading."""

    def __init__(self, step_s: float = 1.0) -> None:
        self.now_s = 100.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def record(recorder: RequestRecorder, response: object, *, api: str = "produce", is_follower: bool = False) -> None:
    """What the dispatcher does."""
    one = recorder.apis[api]
    context = RequestContext(VERSION, 1, "client", PEER, record=one)
    one.until_timed -= 1
    if one.until_timed < 0:
        context.times = one.begin(PEER.timing, 50)
    counted = recorder.follower_fetches if is_follower else one
    counted.versions[context.api_version] += 1
    if response is None:
        counted.successes += 1
    else:
        counted.count_errors(response, counted.errors)
    if context.times is not None:
        counted.ready(context.times, None)


def produced(*codes: ErrorCode) -> ProduceResponse:
    results = [PartitionProduceResponse(index=i, error_code=code, base_offset=0) for i, code in enumerate(codes)]
    return ProduceResponse(responses=[TopicProduceResponse(name="a", partition_responses=results)])


def test_errors_of_single_partitions_are_counted() -> None:
    recorder = RequestRecorder(Times())
    record(recorder, produced(ErrorCode.NONE, ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE))
    assert recorder.apis["produce"].error_codes == {ErrorCode.NONE: 2, ErrorCode.CORRUPT_MESSAGE: 1}


def test_errors_of_the_response_and_of_its_partitions_are_counted() -> None:
    recorder = RequestRecorder(Times())
    data = PartitionData(
        partition_index=0,
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )
    topics = [FetchableTopicResponse(topic="a", partitions=[data])]
    record(recorder, FetchResponse(error_code=ErrorCode.NONE, session_id=0, responses=topics), api="fetch")
    assert recorder.apis["fetch"].error_codes == {ErrorCode.NONE: 1, ErrorCode.OFFSET_OUT_OF_RANGE: 1}
    record(recorder, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[]), api="api_versions")
    assert recorder.apis["api_versions"].error_codes == {ErrorCode.UNSUPPORTED_VERSION: 1}


def test_a_request_without_a_response_is_a_success() -> None:
    recorder = RequestRecorder(Times())
    record(recorder, None)
    assert recorder.apis["produce"].error_codes == {ErrorCode.NONE: 1}
    versions = recorder.apis["produce"].versions
    assert (versions[VERSION], sum(versions)) == (1, 1)


def test_known_successes_are_added_to_those_that_were_found() -> None:
    recorder = RequestRecorder(Times())
    record(recorder, produced(ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE))
    recorder.apis["produce"].successes += 3
    assert recorder.apis["produce"].error_codes == {ErrorCode.NONE: 4, ErrorCode.CORRUPT_MESSAGE: 1}


def test_fetches_of_followers_are_recorded_apart() -> None:
    recorder = RequestRecorder(Times())
    record(recorder, None, api="fetch", is_follower=True)
    assert recorder.apis["fetch"].count == 0
    assert recorder.follower_fetches.count == 1


def test_the_stages_of_a_request_are_in_order() -> None:
    clock = Times()
    recorder = RequestRecorder(clock)
    timing = ConnectionTiming(Measuring(for_metrics=True))
    timing.received_s = 90.0
    one, peer = recorder.apis["produce"], Peer("/127.0.0.1", "PLAINTEXT", timing=timing)
    times = one.begin(peer.timing, 50)
    times.handled_s = clock()
    one.ready(times, timing)
    timing.flushing_s = clock()
    timing.sent(clock())
    assert (times.received_s, times.started_s, times.handled_s, times.ready_s) == (90, 101, 102, 103)
    assert (times.flushed_s, times.sent_s) == (104, 105)
    assert timing.unsent == []


def record_many(recorder: RequestRecorder, clock: Times, count: int, *, between_s: float) -> int:
    """Records requests at this distance; returns how many of them are timed."""
    timed = 0
    for _ in range(count):
        clock.now_s += between_s
        record(recorder, None)
        latest = recorder.apis["produce"].latest
        timed += latest[-1].ready_s == clock.now_s
    return timed


def test_one_of_64_requests_in_quick_succession_is_timed_and_each_of_rare_ones() -> None:
    clock = Times(step_s=0)
    recorder = RequestRecorder(clock)
    assert 0 < record_many(recorder, clock, 1000, between_s=0.0001) < 30
    assert record_many(recorder, clock, 6400, between_s=0.0001) == 100
    record_many(recorder, clock, 200, between_s=0.1)
    assert record_many(recorder, clock, 100, between_s=0.1) == 100
    assert recorder.apis["produce"].count == 7700


def test_the_times_of_the_latest_requests_are_kept() -> None:
    recorder = RequestRecorder(Times())
    for _ in range(SAMPLES_MAX + 10):
        record(recorder, None)
    assert recorder.apis["produce"].count == SAMPLES_MAX + 10
    assert len(recorder.apis["produce"].latest) == SAMPLES_MAX
