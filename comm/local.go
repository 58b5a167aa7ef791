package comm

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Run calls f for each of n ranks, all at the same time in this process, and
// returns the error of the first that failed. That ends the others too.
func Run(n int, f func(c *Comm) error) error {
	if n < 1 {
		return fmt.Errorf("ranks: %d, needs 1 or more", n)
	}
	job := &local{posts: make([]post, n)}
	job.met.L = &job.mu
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			c := New(&localRank{job, r})
			defer func() {
				if p := recover(); p != nil {
					c.Abort(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
				}
			}()
			if err := f(c); err != nil {
				c.Abort(err)
			}
			c.Close()
		})
	}
	wg.Wait()
	return job.failed
}

// local is a job within a process. An operation has two meetings: all have posted
// what they have, and all have taken what they want.
type local struct {
	mu      sync.Mutex
	met     sync.Cond
	posts   []post
	arrived int
	turn    int
	ended   bool  // some rank takes part no more
	failed  error // ends the job
	by      int   // the rank that ended it
}

// post is what a rank lets the others read.
type post struct {
	operation string
	data      []byte
	lengths   []int // of the parts of data
}

type localRank struct {
	job  *local
	rank int
}

func (l *localRank) Rank() int { return l.rank }
func (l *localRank) Size() int { return len(l.job.posts) }

func (l *localRank) Abort(reason error) {
	j := l.job
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end(l.rank, reason)
}

// end ends the job, unless it has been.
func (j *local) end(by int, reason error) {
	if j.failed == nil {
		j.failed, j.by = reason, by
	}
	j.met.Broadcast()
}

var errEnded = errors.New("has ended while others wait for it")

func (l *localRank) Close() error {
	j := l.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended = true; j.arrived > 0 {
		j.end(l.rank, errEnded)
	}
	return nil
}

// meet waits until all ranks have come.
func (l *localRank) meet() error {
	j := l.job
	j.mu.Lock()
	defer j.mu.Unlock()
	turn := j.turn
	if j.ended {
		j.end(l.rank, errors.New("goes on when another has ended"))
	}
	if j.arrived++; j.arrived == len(j.posts) {
		j.arrived = 0
		j.turn++
		j.met.Broadcast()
	}
	for j.turn == turn && j.failed == nil {
		j.met.Wait()
	}
	if j.failed != nil {
		return fmt.Errorf("rank %d: %w", j.by, j.failed)
	}
	return nil
}

// share posts p, and has take read what all have posted.
func (l *localRank) share(p post, take func(from []post) error) error {
	posts := l.job.posts
	posts[l.rank] = p
	if err := l.meet(); err != nil {
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
	if met := l.meet(); err == nil {
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
	return l.share(post{"exchange", send, toEach}, func(from []post) error {
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
	return l.share(post{"gather", own, nil}, func(from []post) error {
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
	return l.share(post{"broadcast", b, nil}, func(from []post) error {
		if root == l.rank {
			return nil
		}
		return copyPart(b, from[root].data)
	})
}

func (l *localRank) Barrier() error {
	return l.share(post{operation: "barrier"}, func([]post) error { return nil })
}
