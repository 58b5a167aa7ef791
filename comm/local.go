package comm

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// RunLocal calls f for each of n ranks, concurrently in this process. After an error of one
// rank, operations of the other ranks fail, and RunLocal returns the first error. A panic in f
// and a call of runtime.Goexit count as errors. It also returns an error if n is below 1.
func RunLocal(n int, f func(c *Comm) error) error {
	if n < 1 {
		return fmt.Errorf("ranks: %d, needs 1 or more", n)
	}
	job := &localJob{posts: make([]localPost, n)}
	job.cond.L = &job.mu
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			c := New(&localRank{job, r})
			err := errGone
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				}
				if err != nil {
					c.Abort(err)
				}
				c.Close()
			}()
			err = f(c)
		})
	}
	wg.Wait()
	return job.failed
}

var errGone = errors.New("its goroutine has ended") // by runtime.Goexit, as in a test that fails

// localJob is a job within a process. An operation has two meetings: one when all ranks have
// posted their data, one when all have read the others'.
type localJob struct {
	mu         sync.Mutex
	cond       sync.Cond
	posts      []localPost
	arrived    int
	turn       int
	isEnded    bool  // some rank takes part no more
	failed     error // ends the job
	failedRank int   // the rank that ended it
}

// localPost is the data of a rank for the others.
type localPost struct {
	operation string
	data      []byte
	lengths   []int // of the parts of data
}

type localRank struct {
	job  *localJob
	rank int
}

func (l *localRank) Rank() int { return l.rank }
func (l *localRank) Size() int { return len(l.job.posts) }

func (l *localRank) Abort(reason error) {
	j := l.job
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endJob(l.rank, reason)
}

// endJob ends the job with the first reason.
func (j *localJob) endJob(by int, reason error) {
	if j.failed == nil {
		j.failed, j.failedRank = reason, by
	}
	j.cond.Broadcast()
}

var errEnded = errors.New("has ended while others wait for it")

func (l *localRank) Close() error {
	j := l.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.isEnded = true; j.arrived > 0 {
		j.endJob(l.rank, errEnded)
	}
	return nil
}

// waitAll waits until all ranks have called it.
func (l *localRank) waitAll() error {
	j := l.job
	j.mu.Lock()
	defer j.mu.Unlock()
	turn := j.turn
	if j.isEnded {
		j.endJob(l.rank, errors.New("goes on when another has ended"))
	}
	if j.arrived++; j.arrived == len(j.posts) {
		j.arrived = 0
		j.turn++
		j.cond.Broadcast()
	}
	for j.turn == turn && j.failed == nil {
		j.cond.Wait()
	}
	if j.failed != nil {
		return fmt.Errorf("rank %d: %w", j.failedRank, j.failed)
	}
	return nil
}

// sharePosts posts p and calls take with the posts of all ranks.
func (l *localRank) sharePosts(p localPost, take func(from []localPost) error) error {
	posts := l.job.posts
	posts[l.rank] = p
	if err := l.waitAll(); err != nil {
		return err
	}
	var err error
	for r, other := range posts {
		if other.operation != p.operation {
			err = fmt.Errorf("rank %d is at %s, this one at %s", r, other.operation, p.operation)
		}
	}
	if err == nil {
		err = take(posts)
	}
	if met := l.waitAll(); err == nil {
		err = met
	}
	return err
}

var errLength = errors.New("lengths differ between ranks")

// copyPart copies a part of the expected length.
func copyPart(to, from []byte) error {
	if len(to) != len(from) {
		return fmt.Errorf("%w: %d bytes come where %d are expected", errLength, len(from), len(to))
	}
	copy(to, from)
	return nil
}

func (l *localRank) Exchange(send []byte, toEach []int, recv []byte, fromEach []int) error {
	return l.sharePosts(localPost{"exchange", send, toEach}, func(from []localPost) error {
		for r, p := range from {
			start := 0
			for _, n := range p.lengths[:l.rank] {
				start += n
			}
			if err := copyPart(recv[:fromEach[r]], p.data[start:][:p.lengths[l.rank]]); err != nil {
				return err
			}
			recv = recv[fromEach[r]:]
		}
		return nil
	})
}

func (l *localRank) Gather(all []byte, lengths []int, own []byte) error {
	return l.sharePosts(localPost{"gather", own, nil}, func(from []localPost) error {
		for r, p := range from {
			if err := copyPart(all[:lengths[r]], p.data); err != nil {
				return err
			}
			all = all[lengths[r]:]
		}
		return nil
	})
}

func (l *localRank) Broadcast(b []byte, root int) error {
	return l.sharePosts(localPost{"broadcast", b, nil}, func(from []localPost) error {
		if root == l.rank {
			return nil
		}
		return copyPart(b, from[root].data)
	})
}

func (l *localRank) Barrier() error {
	return l.sharePosts(localPost{operation: "barrier"}, func([]localPost) error { return nil })
}
