package sessions

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
)

// job is tokens of a session that wait for the model.
type job struct {
	ctx    context.Context
	state  *model.Session
	prefix prefix  // of the tokens that state has read
	feed   []int32 // tokens to read; a job without drawing leaves the last one
	next   [1]int32

	draw    *Draw // nil: only read
	sampler *generate.Sampler
	watch   func(i int, logits []float32) // Draw.Prompt
	watched int                           // tokens of the prompt that watch has seen

	isBroken bool // the state is not valid any more

	counted int64 // bytes of state and of its undo that Manager.memory counts elsewhere
	bytes   int64 // bytes of both beyond counted
	begun   int64 // size of state when the job was queued

	keepFrom int64 // tokens of the last snapshot of the prompt
	keepAt   int64 // a border of chunks that needs a snapshot
	keeps    bool  // snapshots of the prompt enter the cache

	mu       sync.Mutex
	ids      []int32 // drawn
	finished bool
	reason   string
	err      error
	wake     chan struct{} // capacity 1: ids or finished have changed
}

// scheduler owns the model. Each round packs tokens of the waiting jobs into one step.
type scheduler struct {
	m *Manager

	mu     sync.Mutex
	queue  []*job // those that waited longest first
	closed bool
	wake   chan struct{} // capacity 1: queue or closed have changed
	ended  chan struct{} // closed when the goroutine ends

	bytes atomic.Int64 // of states of jobs, beyond the bytes that are counted elsewhere

	jobs  []*job // of a round
	steps []model.SessionStep
}

// newScheduler starts a scheduler.
func newScheduler(m *Manager) *scheduler {
	q := &scheduler{m: m, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go q.serve()
	return q
}

// signal wakes the reader of a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run queues j and returns when it is finished. It calls emit, unless nil, with each drawn
// token on the caller's goroutine, so that a slow reader delays no other job.
func (q *scheduler) run(j *job, emit func(token int32) error) error {
	ctx, cancel := context.WithCancelCause(j.ctx)
	defer cancel(nil)
	j.ctx, j.wake = ctx, make(chan struct{}, 1)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	q.queue = append(q.queue, j)
	j.countBytes()
	j.begun = j.state.SnapshotBytes()
	q.bytes.Add(j.bytes)
	q.mu.Unlock()
	signal(q.wake)
	for seen, failed := 0, false; ; {
		<-j.wake
		j.mu.Lock()
		ids, finished, err := j.ids, j.finished, j.err
		j.mu.Unlock()
		for ; seen < len(ids) && emit != nil && !failed; seen++ {
			if err := emit(ids[seen]); err != nil {
				failed = true
				cancel(err)
			}
		}
		if finished {
			if err == nil && ctx.Err() != nil { // also where all tokens are drawn before the client goes
				err = context.Cause(ctx)
			}
			return err
		}
	}
}

// finish ends j, which is no longer in the queue.
func (j *job) finish(reason string, err error) {
	j.mu.Lock()
	j.finished, j.reason, j.err = true, reason, err
	j.mu.Unlock()
	signal(j.wake)
}

// close ends all jobs with ErrClosed, and the goroutine.
func (q *scheduler) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	signal(q.wake)
	<-q.ended
}

// serve runs rounds while there are jobs.
func (q *scheduler) serve() {
	defer close(q.ended)
	for {
		q.mu.Lock()
		closed := q.closed
		q.pick()
		q.mu.Unlock()
		switch {
		case closed:
			for _, j := range q.queue {
				j.finish("", ErrClosed)
			}
			q.queue = nil
			return
		case len(q.jobs) == 0:
			<-q.wake
		default:
			q.round()
		}
	}
}

// pick sets the jobs and steps of a round, and ends jobs whose context has ended. Drawing
// jobs come first, in turns. Prompts share what is left, at least a chunk. q.mu is held.
func (q *scheduler) pick() {
	q.jobs, q.steps = q.jobs[:0], q.steps[:0]
	prompts, waiting := 0, len(q.queue)
	q.queue = slices.DeleteFunc(q.queue, func(j *job) bool {
		if j.ctx.Err() != nil {
			j.finish("", context.Cause(j.ctx))
			return true
		}
		if j.isPrompt() {
			prompts++
		}
		return false
	})
	if len(q.queue) < waiting {
		q.sumBytes()
	}
	rows := q.m.o.MaxBatch
	single := rows
	if prompts > 0 {
		single = max(rows-chunkTokens, rows/2)
	}
	for _, j := range q.queue {
		if !j.isPrompt() && single > 0 {
			q.add(j, 1)
			single--
			rows--
		}
	}
	for _, j := range q.queue {
		if j.isPrompt() && rows > 0 {
			n := min(len(j.feed), j.prefix.room(), rows)
			if j.draw == nil {
				n = min(n, len(j.feed)-1)
			}
			if j.watch != nil {
				n = 1 // each token needs its logits
			}
			q.add(j, n)
			rows -= n
		}
	}
	// Those that are in the round go to the end of the queue.
	q.queue = slices.DeleteFunc(q.queue, func(j *job) bool { return slices.Contains(q.jobs, j) })
	q.queue = append(q.queue, q.jobs...)
}

// isPrompt reports whether j reads more than one token.
func (j *job) isPrompt() bool { return len(j.feed) > 1 || j.draw == nil }

// add puts n tokens of j into the round.
func (q *scheduler) add(j *job, n int) {
	q.jobs = append(q.jobs, j)
	q.steps = append(q.steps, model.SessionStep{Session: j.state, Tokens: j.feed[:n], SkipLogits: n < len(j.feed) && j.watch == nil})
}

// round makes the step of a round and advances its jobs. States that jobs have put into the
// cache, and those that have grown, may exceed the limit of memory.
func (q *scheduler) round() {
	q.m.coder.group.StepTogether(q.steps)
	q.countRound()
	vocab := float64(q.m.o.Model.Config().Vocab)
	par.RunEach(len(q.jobs), 32*vocab*float64(len(q.jobs)), func(i int) { q.jobs[i].advance(q.m, &q.steps[i]) })
	for _, j := range q.jobs {
		j.countBytes()
	}
	q.mu.Lock()
	q.queue = slices.DeleteFunc(q.queue, func(j *job) bool { return j.finished })
	q.sumBytes()
	q.mu.Unlock()
	clear(q.steps) // of references to sessions
	clear(q.jobs)
	q.m.trimMemory()
	q.refuseGrown()
}

// refuseGrown ends jobs with ErrFull while the states that have to stay in memory exceed its
// limit: first the job whose state has grown the most. States of fixed size do not grow.
func (q *scheduler) refuseGrown() {
	for {
		q.m.mu.Lock()
		n, limit := pinnedBytes(q.m, 0), q.m.o.Memory
		q.m.mu.Unlock()
		if n <= limit {
			return
		}
		var largest *job
		grown := q.m.coder.empty.SnapshotBytes() // a state of fixed size grows by less
		q.mu.Lock()
		for _, j := range q.queue {
			if more := j.state.SnapshotBytes() - j.begun; more > grown {
				largest, grown = j, more
			}
		}
		q.queue = slices.DeleteFunc(q.queue, func(j *job) bool { return j == largest })
		q.sumBytes()
		q.mu.Unlock()
		if largest == nil {
			return
		}
		largest.finish("", fmt.Errorf("%w: states take %d bytes of memory, this request added %d of them, the limit of --memory is %d; repeat it when fewer requests run, or give --memory more", ErrFull, n, grown, limit))
	}
}

// countRound counts the steps of a round. Requests end after it, so that what they did is in
// Stats when they return. A step with logits of a job that draws is a token drawn.
func (q *scheduler) countRound() {
	drawn, read := 0, 0
	for i, j := range q.jobs {
		if q.steps[i].Err == nil {
			read += len(q.steps[i].Tokens)
			if j.draw != nil && q.steps[i].Logits != nil && len(q.steps[i].Tokens) == len(j.feed) {
				drawn++
			}
		}
	}
	q.m.count(func(s *Stats) {
		s.Rounds++
		s.TokensRead += int64(read)
		s.TokensDrawn += int64(drawn)
	})
}

// countBytes sets the bytes of j that are not counted elsewhere.
func (j *job) countBytes() { j.bytes = max(0, j.state.HeapBytes()-j.counted) }

// sumBytes sums the bytes of all jobs. q.mu is held.
func (q *scheduler) sumBytes() {
	var sum int64
	for _, j := range q.queue {
		sum += j.bytes
	}
	q.bytes.Store(sum)
}

// advance takes the result of a step.
func (j *job) advance(m *Manager, s *model.SessionStep) {
	if s.Err != nil {
		j.isBroken = true
		j.finish("", s.Err)
		return
	}
	j.prefix.add(s.Tokens)
	j.feed = j.feed[len(s.Tokens):]
	j.keepSnapshot(m)
	if j.watch != nil && len(j.ids) == 0 {
		j.watch(j.watched, s.Logits)
		j.watched++
	}
	if j.draw == nil {
		if len(j.feed) == 1 {
			j.finish("", nil)
		}
		return
	}
	if len(j.feed) > 0 {
		return
	}
	t, err := j.drawToken(s.Logits)
	if err != nil {
		j.finish("", err)
		return
	}
	j.mu.Lock()
	j.ids = append(j.ids, t)
	j.mu.Unlock()
	j.next[0] = t
	j.feed = j.next[:]
	switch {
	case j.draw.StopAtEnd && slices.Contains(m.o.EndTokens, t), j.draw.Stop != nil && j.draw.Stop(j.ids):
		j.finish(Stopped, nil)
	case len(j.ids) == j.draw.MaxTokens:
		j.finish(Length, nil)
	default:
		signal(j.wake)
	}
}

// drawToken draws the next token.
func (j *job) drawToken(logits []float32) (int32, error) {
	if j.draw.Shape != nil {
		if err := j.draw.Shape(j.ids, logits); err != nil {
			return 0, err
		}
	}
	t, err := j.sampler.DrawToken(logits, uint64(len(j.ids)))
	if err == nil && j.draw.Drawn != nil {
		j.draw.Drawn(t)
	}
	return t, err
}

// keepSnapshot puts a snapshot of a prompt into the cache at some borders of chunks.
func (j *job) keepSnapshot(m *Manager) {
	if !j.keeps || len(j.prefix.rest) > 0 || len(j.ids) > 0 {
		return
	}
	n := j.state.Tokens()
	if n != j.keepAt && n-j.keepFrom < reuseDistance(n, j.state.Bytes()) {
		return
	}
	j.keepFrom = n
	if !m.cache.has(j.prefix.chain) {
		m.cache.put(j.prefix, j.state.Clone())
	}
}
