"""Every bound, timer and default of Hubbub, and how they relate.

A bound that is reached is a counted outcome, never an accident. Times are nanoseconds unless the
name says otherwise, because `now` is an integer of nanoseconds everywhere.
"""

from typing import Final

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000

# Subjects.
SUBJECT_BYTES_MAX: Final = 1024
SUBJECT_LEVELS_MAX: Final = 64
NODE_NAME_BYTES_MAX: Final = 255
RELEASE_BYTES_MAX: Final = 64

# The report. What is more is summed up in pictures and left out of tables, and that is said.
REPORT_BYTES_MAX: Final = 2_000_000
REPORT_TIMES_MAX: Final = 96  # Columns of a picture over time.
REPORT_SERIES_MAX: Final = 5  # As many colours as everybody can tell apart.
REPORT_TOPICS_MAX: Final = 32  # Rows of a picture.
REPORT_NODES_MAX: Final = 16
REPORT_MARKS_MAX: Final = 32  # On one line of the timeline.
REPORT_ROWS_MAX: Final = 200  # Of a table below a picture; fewer if the page gets too large.
REPORT_FINDINGS_MAX: Final = 8  # Of one kind; the others are counted together.
REPORT_TEXT_MAX: Final = 160  # Characters of one cell, or of what a part says when pointed at.

# Frames.
# A declaration of the longest subject and type name must fit; IPv6 promises an MTU of 1280.
FRAME_BYTES_MIN: Final = 1232
FRAME_BYTES_MAX: Final = 65_507
MESSAGE_BYTES_MAX: Final = 1 << 30
# Smaller pieces of a large message would cost more to keep than they hold.
SEGMENT_STRIDE_MIN: Final = 256
HOP_LIMIT: Final = 8
TOPIC_FIRST: Final = 16
TOPICS_MAX: Final = 1 << 20
SEQUENCE_MAX: Final = (1 << 64) - 1
TIME_MAX: Final = (1 << 64) - 1  # Of a publish time.

# Batching: a sender that sent more than BUSY_MESSAGES in one BUSY_WINDOW holds back.
BUSY_WINDOW: Final = 1 * MS
BUSY_MESSAGES: Final = 20
ANSWERS_WITHIN: Final = 8 * MS  # Who waits in between, and publishes so often, answers somebody.
BYTES_PER_MESSAGE: Final = 16 << 10  # A message counts as one more for each of these.
HOLDBACK: Final = 1 * MS
BACKLOG_BYTES_MAX: Final = 4 << 20
BACKLOG_MESSAGES_MAX: Final = 65_536
# Who publishes sends what it held back; the I/O thread sees to it that nothing stays behind.
PUBLISHER_TURN: Final = 300 * US  # Who publishes serves the loop beside it so often.
PUBLISHER_SENDS: Final = 2 * MS + HOLDBACK // 2
# One caller sends at most so many bursts, lest it become everybody's sender: some 2 MB. It is more
# than a message of 1 MiB, because the I/O thread would be woken for the rest and leave that to who
# publishes: with 4 there were two switches of threads more for each message.
FLUSH_BURSTS_MAX: Final = 32
HAND_OUT_S: Final = 1.0  # So long a flush waits for callbacks that another thread runs.

# Flow control (decision 0005).
WINDOW_BYTES_MIN: Final = 16 * 1024
# A longer queue makes round trips slower, a shorter one leaves less to send during a repair: at
# 5 % loss 3 MiB keep 73 % of the lossless goodput, 4 MiB more than 80 %.
WINDOW_BYTES: Final = 4 << 20
# What the kernel charges a socket buffer for a datagram beside its bytes.
FRAME_COST_BYTES: Final = 768
STATUS_INTERVAL: Final = 20 * MS
STATUS_WINDOW_SHARE: Final = 4  # A quarter window of news earns a STATUS.
RESUME_WINDOW_SHARE: Final = 8  # Who was stopped by a window goes on when an eighth of it is free.
ACTIVE_SENDER: Final = 100 * MS
SLOW: Final = 200 * MS
SEND_TIMEOUT_S: Final = 5.0
ACKNOWLEDGE_MS_MAX: Final = 60_000

# Repair (RFC 5401, research in decision 0004).
BACKOFF_FACTOR: Final = 4  # K
GRTT_FLOOR: Final = 2 * MS
GRTT_CEILING: Final = 500 * MS
GRTT_START: Final = 10 * MS
REORDER_TOLERANCE: Final = 1 * MS
HOLDOFF_CEILING: Final = 1 * SECOND
UNANSWERED_CYCLES: Final = 5
REPAIR_ROUNDS_MAX: Final = 100
REPAIR_TIME_MAX: Final = 60 * SECOND
MISSING_FRAMES_MAX: Final = 65_536
NAK_RANGES_MAX: Final = 80
NAK_BITMAP_BITS_MAX: Final = 16_384
LOST_RUNS_MAX: Final = 1024  # Kept of one topic until its order comes to them.
HELD_BYTES_MAX: Final = 4 << 20

# History: what a topic keeps for those who come later. The newest message is kept at any size.
HISTORY_MESSAGES_MAX: Final = 65_536
HISTORY_BYTES_MAX: Final = 16 << 20
REQUESTS_MAX: Final = (1 << 32) - 1
REPLAYS_PER_PEER_MAX: Final = 4096  # Under way at one time; who asks for more gets what is new.
REPLAY_MESSAGES_AT_ONCE: Final = 256  # So many wait to be sent beside what is new.
REPLAY_BYTES_AT_ONCE: Final = 1 << 20
JOINING_BYTES_MAX: Final = 64 << 20  # What is new waits at most so long for the history before it.

# Time-triggered topics (decision 0024).
PORTS_MAX: Final = 0xFFFF
PERIOD_US_MAX: Final = 24 * 3600 * 1_000_000  # A day.
LEASE_MS_MIN: Final = 3000
LEASE_PERIODS: Final = 5  # An interest holds for so many of its longest period, or LEASE_MS_MIN.
LEASE_MS_MAX: Final = LEASE_PERIODS * PERIOD_US_MAX // 1000
LEASE_RENEWALS: Final = 3  # Renewed so often while it holds.
WANTS_MAX: Final = 64  # Consumers that one interest names, and with them at least so many periods.
FLOOR_US: Final = 1000  # No producer has ticks closer to each other,
CAP_HZ: Final = 1000  # nor more of them, unless it is told otherwise.
CAP_HZ_MAX: Final = 1_000_000
COPIES_MAX: Final = 8  # Of one sample.
PERIODS_PLANNED_MAX: Final = 64  # Different ones; more are served at the shortest of them.
INTERESTS_MAX: Final = 4096  # Of one producer, and
INTERESTS_PER_NODE_MAX: Final = 1024  # of one node in it.
OVERRUN_TICKS_COUNTED: Final = 1000  # Further ticks that were missed at once are reckoned.
PRODUCERS_HEARD_MAX: Final = 4096  # By one consumer.
COMPONENTS_MAX: Final = 4096
PASSED_BY_MAX: Final = 1 << 14  # Types and routes that are known to concern nobody here.
DIRECT_BYTES_MAX: Final = 1024
SLOT_TOLERANCE_MIN: Final = 20 * MS  # A slot is given up half a period, or so long, after its end.
CONSUMER_SILENCE: Final = 3 * SECOND  # A producer is lost that was silent so long, or five periods.
VACANCY_TOLD: Final = 1 * SECOND  # A consumer tells that nobody makes anything for it after this.
TIMED_REPEATS: Final = 2  # Of what changes, beside the first time;
TIMED_REPEAT_INTERVAL: Final = 20 * MS  # the rest is left to renewals.
OFFER_INTERVAL: Final = 1 * SECOND  # While somebody observes.
OFFER_SPACING: Final = 100 * MS
TIMED_REPORT: Final = 1 * SECOND  # Events of one kind, subject and reason: one so often.
STOP_PATIENCE_S: Final = 0.08  # Of stop(): for a sampling function that is running.

# The slot clock.
CLOCK_STEP: Final = 50 * MS  # Larger differences are stepped, smaller ones slewed,
CLOCK_SLEW_PARTS: Final = 100  # by one part in so many.
CLOCK_INTERVAL: Final = 1 * SECOND
CLOCK_INTERVAL_FAST: Final = 50 * MS  # For the first CLOCK_SAMPLES exchanges.
CLOCK_SAMPLES: Final = 8
CLOCK_ERROR_MAX: Final = 2 * MS  # Beyond it a clock does not count as synchronised.
CLOCK_SILENCE: Final = 5 * SECOND  # Of a reference, before another is taken.
CLOCK_DRIFT_PPM: Final = 100  # By which the error of an estimate grows meanwhile.

# Services (decision 0025).
SERVICE_NAME_BYTES_MAX: Final = 255
# Who wants more patterns of one service than this is sent everything, and looks by itself.
SERVICE_PATTERNS_MAX: Final = 64
SERVICE_LEVELS_MAX: Final = 8  # Of a subject that name its service.
SERVICE_SUBJECTS_KEPT: Final = 65_536  # Topics of others that travel by services.
SERVICE_PATTERNS_BYTES_MAX: Final = 1024
SERVICE_PAYLOAD_BYTES_MAX: Final = 60_000  # One datagram, cut by the network where it must be.
SERVICE_LEASE: Final = 30 * SECOND  # A subscription holds so long; it is renewed thrice as often.
SERVICE_LEASE_MS_MAX: Final = 3_600_000
BARE_LEASE: Final = 3600 * SECOND  # Of one who speaks the first version and renews nothing.
BARE_PUBLISHERS_MAX: Final = 4096  # Of the first version and their services, that we count for.
SERVICE_HOPS_MAX: Final = 16
SERVICE_NUMBER_MAX: Final = 1 << 62  # Of stamps, incarnations and the order of messages.
SERVICE_EPOCH_MAX: Final = 1 << 31
# What another manager is said to have counted is believed up to half of what there is, so that we
# can go on from there, and moves us on by no more than so many changes of managers would.
SERVICE_NUMBER_TOLD_MAX: Final = SERVICE_NUMBER_MAX // 2
SERVICE_EPOCH_TOLD_MAX: Final = SERVICE_EPOCH_MAX // 2
SERVICE_EPOCH_LEAP: Final = 1 << 16
SERVICES_MAX: Final = 10_000  # That one node manages, or holds a copy of.
SUBSCRIBERS_MAX: Final = 20_000  # Of one service.
SERVICE_REQUESTS_MAX: Final = 256  # That wait at one member of a service for its answer.
COPIES: Final = 2  # The next so many nodes hold a copy of each list,
COPY_DELAY: Final = 20 * MS  # and hear of changes so soon.
COPY_INTERVAL: Final = 10 * SECOND
LIST_PART_ENTRIES: Final = 20  # Of a list in one frame.
LIST_PARTS_MAX: Final = 1024
HELD_REQUESTS_MAX: Final = 256  # Of one service, until its list is there,
HELD_REQUESTS_BYTES_MAX: Final = 4 << 20  # and their bytes: what two publishers may have under way.
PULL_PATIENCE: Final = 600 * MS  # For the list of a service, of which
PULL_WIDER: Final = 150 * MS  # others are asked where some say nothing for so long,
PULL_NODES_MAX: Final = 16  # so many nodes at most.
ABSENCE: Final = 15 * SECOND  # So long messages are kept for a subscriber that stands still,
ABSENT_NODE_BYTES_MAX: Final = 4 << 20  # so many bytes of them,
ABSENT_BYTES_MAX: Final = 16 << 20  # and so many for all who do.
HAND_OVER_PATIENCE: Final = 2 * SECOND
HAND_OVER_RETRY: Final = 500 * MS
FORWARDER_GRACE: Final = 20 * SECOND  # Twice the time in which views are refreshed.
DIRECT_FAN_OUT: Final = 32  # More subscribers than this are served by a tree,
TREE_FAN_OUT: Final = 8  # in which each node serves so many; the manager more, but not above that,
TREE_NODES_PER_FRAME: Final = 80  # if there are more than so many for each frame to name.
# Where so many hear the group of the services, they are sent a message together. To fewer it saves
# too little for what it costs others, who hear it, too.
GROUP_MIN: Final = 3
GROUP_MEMORY: Final = 2 * SECOND  # So long a subscriber says that it has heard the group,
GROUP_BELIEF: Final = 10 * SECOND  # and so long after that it is believed.
GROUP_DEAF: Final = 5 * SECOND  # Who missed something is not counted on for so long, doubling,
GROUP_DEAF_MAX: Final = 320 * SECOND  # up to this.
GROUP_TRIAL: Final = 1 * SECOND  # So often a group that nobody hears is tried, doubling,
GROUP_TRIAL_MAX: Final = 64 * SECOND  # up to this.
HOP_TIMEOUT: Final = 100 * MS  # Doubling; more where answers take longer,
HOP_TIMEOUT_MAX: Final = 1 * SECOND  # up to this.
HOP_TRIES: Final = 5
HOP_WINDOW: Final = 256  # Frames on the way to one node,
HOP_WINDOW_BYTES_MIN: Final = 64 << 10  # and bytes: fewer where they are lost,
HOP_WINDOW_BYTES_MAX: Final = 192 << 10  # never more than an ordinary socket buffer holds.
HOP_BACKLOG: Final = 16_384  # So many frames wait for them,
HOP_BACKLOG_BYTES: Final = 16 << 20  # or bytes, and then the oldest are given up.
# While more than this waits for a node that gets on, messages are taken, but not acknowledged.
HOP_CROWDED_BYTES: Final = 512 << 10
HOP_CROWDED: Final = 4096  # Frames, which may be small.
CROWDED_LOOK: Final = 10 * MS  # So often it is seen whether that is still so.
HOP_STUCK: Final = 300 * MS  # Who acknowledges nothing for so long does not get on.
ANSWERS_PER_FRAME: Final = 40
ACK_DELAY: Final = 10 * MS  # Acknowledgements of messages wait so long for each other,
ACK_BYTES: Final = 32 << 10  # unless they are of so much,
PUBLISHES_PER_ANSWER: Final = 4  # or of so many frames of one publisher in a hurry,
SINGLES_PER_ANSWER: Final = 8  # or of so many of one that sends its messages one by one.
SINGLES_HELD_MAX: Final = 32  # Those that are slow to come are answered so many at once.
PUBLISHES_MAX: Final = 16_384  # Messages of one node whose end is not known yet,
PUBLISHES_BYTES_MAX: Final = 2 << 20  # and their bytes.
LANES_MAX: Final = 16_384  # Services and subjects that a node publishes in; idle ones go first.
BATCH_AT_ONCE: Final = 8  # Frames of one service that may be under way before messages wait
BATCH_HOLD: Final = 1 * MS  # for each other, so long at most.
BATCH_HOLD_BEHIND: Final = 50 * MS  # Longer where the manager seems to be dead, or far behind.
BATCH_QUIET: Final = 100 * US  # Who published nothing for so long need not wait,
BATCH_QUIET_AT_ONCE: Final = 64  # while no more of its frames are under way.
BATCH_MESSAGES_MAX: Final = 4096  # In one frame.
BATCH_BYTES: Final = 1300  # Of it, unless the network takes longer ones.
# As long as subscriptions hold: managers may die one after the other before they have a list.
PUBLISH_PATIENCE: Final = SERVICE_LEASE
REQUEST_PATIENCE_S_MAX: Final = 86_400.0  # Of who waits for a reply, and is not told otherwise.
SEEN_WINDOW: Final = 32_768  # Messages of one publisher that may be under way at once, twice.
# Of one service, with each of their subjects. Of more those are forgotten who were silent for so
# long that none of their messages is repeated any more; of far more, whoever was silent longest.
SEEN_PUBLISHERS_MAX: Final = 4096
SEEN_KEPT: Final = 240 * SECOND  # Publishers are patient for up to 210 s (membership `seed`).
SEEN_PUBLISHERS_CEILING: Final = 65_536
ORDER_PATIENCE: Final = 2 * SECOND  # So long a message waits for one that comes before it.
ORDER_WAITING_MAX: Final = 4096
ORDERED_PUBLISHERS_MAX: Final = SEEN_PUBLISHERS_MAX  # Of one service, whose order is kept;
ORDERS_LEFT_MAX: Final = 65_536  # of so many more it is known how far it was.
ORDER_LEAP: Final = 1 << 32  # Between the last number of a manager and the first of the next.
ORDER_LEAP_PATIENCE: Final = 800 * MS  # So long the next one waits: some come at the third try.
INVENTORY_SERVICES: Final = 8  # In one frame: a name may be long.
INVENTORY_NODES: Final = 64  # In one frame, of those who subscribe to a service,
INVENTORY_NODES_MAX: Final = 1024  # and in all: who looks on is told how many more there are.
INQUIRIES_MAX: Final = 256  # Of one service each, that are not answered.
RETAIN_MS: Final = 3_600_000
RECORDS_PER_FRAME_MAX: Final = 16
MEMBERS_MAX: Final = 20_000
SEEDS_MAX: Final = 64  # Addresses to ask at, where names have had several in the course of time.
JOIN_INTERVAL: Final = 500 * MS
JOIN_PATIENCE: Final = 1 * SECOND  # So long a node looks for others before it acts alone.
LEAVE_PATIENCE: Final = 2 * SECOND
DEAD_KEPT: Final = 600 * SECOND
FORMER_PLACES_MAX: Final = 32  # Of those that were forgotten after that,
FORMER_INTERVAL: Final = 30 * SECOND  # one of which is asked so often: a partition may have ended.
# Incarnations are microseconds of a wall clock. One may be wrong by decades, as where there is no
# battery; an incarnation that is further ahead is nobody's, and nothing could be above it.
INCARNATION_LEAD_US: Final = 100 * 366 * 86_400 * 1_000_000

# The retransmission cache, and the run tables that outlive the payloads in it.
CACHE_BYTES_MAX: Final = 64 << 20
CACHE_AGE: Final = 60 * SECOND
RUN_TABLES_MAX: Final = 100_000

# Reassembly.
REASSEMBLY_BYTES_MAX: Final = 1 << 30
REASSEMBLIES_PER_PEER_MAX: Final = 4096  # More than a window has frames.

# Tail heartbeats, doubling.
TAIL_HEARTBEAT: Final = 10 * MS
TAIL_HEARTBEAT_CEILING: Final = 1 * SECOND
TAIL_HEARTBEAT_LEAVING: Final = 40 * MS  # While a node that closes serves repairs.

# Discovery.
HEARTBEAT: Final = 1 * SECOND
PEER_TIMEOUT: Final = 3 * SECOND
OPENING: Final = 45 * MS
OPENING_HELLO_INTERVAL: Final = 5 * MS
# Who closes while it still looks around has no second chance with a peer whose machine is busy.
OPENING_WHEN_CLOSING: Final = 200 * MS
# Who comes so late to the end of it was kept from running, and looks around again; not for ever.
OPENING_LATE: Final = 10 * MS
OPENING_MAX: Final = 400 * MS
ANNOUNCE_REPEATS: Final = 2
ANNOUNCE_INTERVAL: Final = 10 * MS
# Changes of the declared state that follow each other sooner are announced together.
ANNOUNCE_SPACING: Final = 2 * MS
REPLY_DELAY_MAX: Final = 20 * MS
REPLY_DELAY_PER_PEER: Final = 200 * US
WANT_INTERVAL: Final = 20 * MS
WANT_INTERVAL_CEILING: Final = 1 * SECOND
GRANT_INTERVAL: Final = 10 * MS
GRANT_INTERVAL_CEILING: Final = 500 * MS
PEERS_MAX: Final = 4096
STRANGERS_MAX: Final = 512
DEPARTED_MAX: Final = 1024
INDEX_MAX: Final = 0x7FFF  # Of a node in the register; far more than there may be peers.
# Who must take another index first hears of others that must, so that they do not take the same.
INDEX_PATIENCE: Final = 20 * MS
PATTERNS_MAX: Final = 65_536
# What is kept of the declared state of one peer; the rest is counted.
PUBLICATIONS_MAX: Final = 65_536
PUBLICATIONS_BYTES_MAX: Final = 8 << 20
# Beside the longest subject so much of the name of a type fits into the smallest frame.
SCHEMA_NAME_BYTES_MAX: Final = 56
SCHEMA_HASH_MAX: Final = (1 << 64) - 1
STEPS_MAX: Final = 8192  # Of our own declared state, to be told; more, and the whole goes instead.
LINGER: Final = 1 * SECOND
GOODBYE_INTERVAL: Final = 5 * MS
GOODBYE_REPEATS: Final = 4

# Receivers of this host and elsewhere get streams of their own once there are both for so long:
# nodes find each other by the group first, and their pipes follow.
SORTING_CALM: Final = 100 * MS
# Who wants what, and no link that may carry it leads there for so long, is told.
LINKLESS_PATIENCE: Final = 1 * SECOND
# A stream left with one receiver goes straight to it only after so long without another, and two
# streams become one again after so long with receivers on one side alone.
STRAIGHT_CALM: Final = 10 * SECOND

# Pipes. A frame of this size still goes by UDP, in fragments, where a pipe has ended.
PIPE_FRAME_BYTES: Final = 60_000

# TCP. A record is a burst of frames; a peer that cannot be reached is called ever less often.
RECORD_BYTES_MAX: Final = 1 << 17
PACKED_BYTES_MIN: Final = 128  # A smaller record is sent as it is.
UNPACKED_BYTES_MAX: Final = 64 << 20  # Of what comes by one read of a connection.
DIAL_INTERVAL: Final = 100 * MS
DIAL_INTERVAL_CEILING: Final = 5 * SECOND
DIAL_TIMEOUT: Final = 5 * SECOND
FOUND_PEERS_MAX: Final = 256  # That are called though nobody named them; half of all pipes.
REFUSAL_INTERVAL: Final = 10 * SECOND  # The same caller, refused for the same reason, is told of.

# Payloads by reference.
REFERENCE_BYTES_MIN: Final = 16 << 10
REFERENCES_PER_FRAME: Final = 64
BLOCK_BYTES_MAX: Final = 1 << 20  # So much of what shares a frame shares a slot.
REFERRED_BYTES_AT_ONCE: Final = 4 << 20  # So much of large messages need not wait for more.
ALONE_BYTES_MIN: Final = 256 << 10  # One of this size waits for others only behind what is unread.
STORE_BYTES_MAX: Final = 256 << 20
STORE_WARM_BYTES: Final = 16 << 20  # So much is still in the cache when it is read (4 frames).
STORE_WARM_PATIENCE: Final = 2 * MS  # So long it is worth waiting for a reader that gets on.
STORE_PATIENCE: Final = 200 * MS  # A reader that gives nothing back for so long is left behind.

# Subscriptions and delivery.
QUEUE_MESSAGES: Final = 1024
DELIVERY_THREADS_MAX: Final = 16
STARVED_MS: Final = 20
SWITCH_INTERVAL_MS: Final = 0.5
SPIN_US: Final = 300
SPIN_US_MAX: Final = 10_000
# A reader that ran the loop may be away so long before the I/O thread takes over.
LEAD_PATIENCE: Final = 4 * MS
LEAD_PATIENCE_MAX: Final = 30 * MS  # If it gets on with what it has.
# The loop looks at its own lateness so often when nothing else is due.
LATENESS_TICK: Final = 100 * MS
LATENESS_REPORT: Final = 1 * SECOND
DETACH_TIMEOUT_S: Final = 2.0  # An inline callback that never returns must not hang close().
DELIVERY_SLICE: Final = 5 * MS  # A subscription's turn on a delivery thread.
# A turn this long means a callback blocks: another thread may help.
DELIVERY_OVERDUE: Final = 10 * MS
DELIVERY_IDLE_S: Final = 5.0
DROP_REPORT: Final = 1 * SECOND
DROP_RANGES_MAX: Final = 64
# What a node tells of itself on `/hubbub/events`: so often, so many slow consumers and consumers.
TOLD_EACH: Final = 1 * SECOND
TOLD_EVENTS_MAX: Final = 32
TOLD_CONSUMERS_MAX: Final = 256
REPEATABLE_TOPICS_MAX: Final = 65_536  # Of tasks that may be run again; the oldest is forgotten.
# A coroutine that never has to wait lets others run after so many.
ASYNC_TURN_MESSAGES: Final = 256

# The journal of a recorder.
JOURNAL_READ_BYTES: Final = 1 << 20
JOURNAL_PREALLOCATED_BYTES_MIN: Final = 64 << 10
JOURNAL_WRITE_BYTES: Final = 4 << 20  # So much of a group is written at a time.
JOURNAL_FORGET_BYTES: Final = 8 << 20  # Larger groups do not stay in memory.
JOURNAL_SPLIT_BYTES: Final = 128 << 20
JOURNAL_SPLIT_BYTES_MIN: Final = 64 << 10
JOURNAL_SPLIT_BYTES_MAX: Final = 1 << 30  # With the largest message it still fits 32 bits.
JOURNAL_SPLIT_ROWS: Final = 1 << 20  # Messages of a segment, and so rows of one file of Parquet.
JOURNAL_SPLIT_S: Final = 1.0  # Readers of Parquet see a message so much later, at most.
RECORDER_QUEUE_BYTES: Final = 128 << 20
RECORDER_QUEUE_BYTES_MIN: Final = 1 << 20
RECORDER_GROUP_BYTES: Final = 32 << 20  # What is written and synced at once.
RECORDER_GROUP_PATIENCE_S: Final = 0.005  # So long a small group waits for more.
RECORDER_PINNED_BYTES_MAX: Final = 4 << 20  # Of memory that publishers want back.
RECORDER_ROWS_BYTES: Final = 4 << 20  # Of rows that are no messages, when the queue is full.
RECORDER_LOST_RANGES_MAX: Final = 4096
RECORDER_TOPICS_KEPT: Final = 65_536
RECORDER_LOOK_S: Final = 1.0  # At counters, and at who publishes and wants what.
RECORDER_LOOK_S_MIN: Final = 0.05  # Sooner than that not even when somebody came.
RECORDER_LOOK_SHARE: Final = 20  # A look that takes long is the rarer for it.
RECORDER_RETRY_S: Final = 0.1  # Between two tries at a disk that refuses.
RECORDER_CLOSE_S: Final = 5.0  # So long a disk that refuses is tried when all is to end.

# Spark.
JAVA_MAJOR_MIN: Final = 17
JAVA_START_S: Final = 20.0
SPARK_LOG_BYTES_MAX: Final = 4 << 20
TABLE_READ_ATTEMPTS: Final = 5
# More small files of one table than this are put together.
TABLE_SMALL_FILES_MAX: Final = 32
TABLE_SMALL_BYTES: Final = 4 << 20
WINDOW_S: Final = 10.0
WATERMARK_S: Final = 60.0
WINDOW_S_MAX: Final = 3600.0
WATERMARK_S_MAX: Final = 7 * 86_400.0
# What was in a folder is believed once nothing changed there for so long, and then for so long.
LISTING_SETTLED_S: Final = 0.5
LISTING_KEPT_S: Final = 60.0
STEP_FILES_MAX: Final = 200  # A step of an incremental or live run reads at most so many files.
STEP_ROWS: Final = 20_000_000  # A step of a batch run reads about so many rows.
SMALL_STEP_ROWS: Final = 200_000  # So few rows are quicker in one piece than spread.
ALERT_INTERVAL_S: Final = 1.0  # A live run looks at its rules so often.
ALERT_HOURS: Final = 2  # So much of tables with windows is looked at.
CHECKPOINT_INTERVAL_S: Final = 30.0  # A reader tells the store how far it is so often.
READER_STALE: Final = 600 * SECOND  # One that has not moved for so long yields to a quota.
RECORDED_TIME_MAX: Final = 1 << 62  # In 2116; differences of two times fit into 64 bits.

# The Parquet files of a store.
ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 32 << 20  # Of payloads; beyond it a row group ends.
# Rows that tell of damage are numbered from here on: beyond all that a recorder counts.
DAMAGE_NUMBER: Final = 1 << 62
DAMAGES_PER_SEGMENT_MAX: Final = 1024
# Small files of an hour become large ones so long after its end, if nobody needs them any more;
COMPACT_AFTER: Final = 10 * 60 * SECOND
COMPACT_BYTES: Final = 256 << 20
COMPACT_ROWS: Final = 16 << 20
COMPACT_POLL_S: Final = 60.0
SWEEP_AFTER: Final = 3600 * SECOND  # so much later they go: who has just listed them is done.
CONVERT_POLL_S: Final = 0.1  # So often it is looked whether a segment was closed,
CONVERT_RETRY_S: Final = 1.0  # and so long after one that the disk refused.
CONVERTER_NICENESS: Final = 10
CONVERTER_GRACE_S: Final = 30.0  # So long may a converter take to finish when it is told to.

# The data source of Spark. A task reads so many rows, so many at a time.
SOURCE_PARTITION_ROWS: Final = 500_000
SOURCE_BATCH_ROWS: Final = 65_536
SOURCE_BATCH_BYTES: Final = 32 << 20
SOURCE_HINT_BYTES: Final = 1 << 20  # A segment need not be read from its beginning.
SOURCE_LOOKS_MAX: Final = 100  # For a file that was there when it was listed.
SOURCE_PATIENCE_S: Final = 5.0  # For rows that another host has seen already.
SINK_MEMORY_BYTES: Final = 64 << 20  # Of the rows of a task; the rest is in a file.
SINK_TIMEOUT_S: Final = 30.0
SWEEP_RUNS_PER_TASK: Final = 8  # Seeds of a simulation; their traces are one file.

# Gateways.
ROUTE_AGE: Final = 10 * SECOND  # A node that is silent for so long may be behind any link.
ORIGIN_NAME_BYTES_MAX: Final = 64  # Of its name, as gateways tell it.
RELAYED_SUBJECT_BYTES_MAX: Final = 768  # A declaration with an origin must fit the smallest frame.
PLACES_MAX: Final = 65_536  # Topics of origins elsewhere whose sequence is remembered.
TREE_LISTEN: Final = 200 * MS  # So often a gateway looks around,
BEACON_INTERVAL: Final = 2 * TREE_LISTEN  # and every other time it tells where it is.
BEACON_TIMEOUT: Final = 4 * BEACON_INTERVAL  # Three beacons may be lost in a row.
TREE_HOLD: Final = TREE_LISTEN  # By then all who went by a way know that it is lost.
# A gateway that stands by because of beacons that were lost passes on again by then.
WISH_LINGER: Final = 2 * BEACON_INTERVAL
TREE_ALONE: Final = 3 * TREE_LISTEN  # After so long it passes on, if there is no other gateway;
# else after so long: it has heard what it takes over by then, and who stands by for another that
# died just before has taken over from that one.
TREE_JOIN: Final = BEACON_TIMEOUT + 900 * MS
PORT_KEPT: Final = 5 * SECOND  # What a gateway that stands by remembers,
PORT_KEPT_BYTES: Final = 16 << 20  # at most.
PORT_BYTES_CROWDED: Final = 4 << 20  # With so much waiting at a port, others take in no more.
PORT_BYTES_MAX: Final = 256 << 20  # Beyond, what comes is dropped, which is a hole beyond.
PORT_DEPTH_BYTES: Final = 256 << 10  # Where something may be urgent, so much is given to a stream.
PORT_PATIENCE: Final = 5 * MS  # Those who are behind are served first, for so long.
PORT_SWEEP: Final = 5 * SECOND  # Topics of origins that are gone are looked for so often.
PORT_RETRY: Final = 1 * MS  # A port without room is tried again so soon.
RODOS_LIST_INTERVAL: Final = 3 * SECOND  # As RODOS does it; at once when something changed.
RODOS_TIMEOUT: Final = 10 * SECOND
ROUTED_MAX: Final = 4096  # Messages that are remembered, so that none is taken twice.
ROUTES_TOLD_MAX: Final = 200  # Topics of a side that a gateway tells of, and nodes there.
ROUTES_NAMES_MAX: Final = 1000  # Subjects and patterns that these declare.
ROUTES_TELL: Final = 1 * SECOND
ROUTES_MAX: Final = 4096  # Nodes that a router remembers; who was silent longest is forgotten.

assert HEARTBEAT < PEER_TIMEOUT < CACHE_AGE
assert TAIL_HEARTBEAT < STATUS_INTERVAL < SLOW
assert WINDOW_BYTES <= HELD_BYTES_MAX <= CACHE_BYTES_MAX
assert OPENING <= 50 * MS
assert ANNOUNCE_SPACING < ANNOUNCE_INTERVAL
assert ANNOUNCE_REPEATS * ANNOUNCE_INTERVAL <= WANT_INTERVAL
assert PEERS_MAX < INDEX_MAX
assert SEGMENT_STRIDE_MIN <= FRAME_BYTES_MIN // 2
assert DELIVERY_SLICE < DELIVERY_OVERDUE
assert 2 * ROW_GROUP_BYTES + MESSAGE_BYTES_MAX < 1 << 31  # What Parquet's offsets can say.
# Who says that it hears a group that fell silent has stopped saying so before it is believed again.
assert GROUP_DEAF > 2 * GROUP_MEMORY
