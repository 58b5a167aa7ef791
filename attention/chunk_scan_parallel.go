package attention

import (
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// The linear form of a task that several workers do together: the chunks of
// linearForward and linearBackward, each with the same operations.

// tokens returns the tokens of a chunk.
func (u linearForm[T]) tokens() int { return min(u.chunk, max(u.n, u.m, 1)) }

// memberScan returns a scan for chunks of its task anywhere.
func (u linearForm[T]) memberScan() *chunkScan[T] {
	s := newChunkScan(u.headTask, u.walker, u.tokens(), u.takeScratch)
	s.usesCallValues = true
	if u.mask != nil {
		s.lead = slices.Index(u.mask, true)
	}
	if len(u.logG.Data) > 0 {
		s.ages = u.decay().takeAges(s.c)
	}
	return s
}

// beginChunk opens a chunk after j keys of the task.
func (s groupScan[T]) beginChunk(j int) {
	s.clearChunk()
	s.first = unseen
	if 0 <= s.lead && s.lead < j {
		s.first = -1
	}
	s.decay().recede(j)
}

// openChunk opens chunk i of a causal sequence.
func (s groupScan[T]) openChunk(i int) {
	j0, j1, _, _ := s.u.linear().chunkBounds(i*s.c, s.c)
	s.beginChunk(j0)
	s.absorbKeys(j0, j1)
}

// openChunkAges is open for the ages of a chunk alone.
func (s groupScan[T]) openChunkAges(i int) {
	if s.ages == nil {
		return
	}
	j0, j1, _, _ := s.u.linear().chunkBounds(i*s.c, s.c)
	s.beginChunk(j0)
	s.decay().age(j0, j1)
	s.n = j1 - j0
}

// addOpenChunk adds the open chunk to m.
func (s groupScan[T]) addOpenChunk(m *features.Moments[T]) {
	if s.n == 0 {
		return
	}
	mark := s.u.ar.Mark()
	v, ldv, w := s.decay().agedKeys()
	m.AddTokens(s.u.ar, s.m, s.x, s.ld, s.n, v, ldv, w)
	s.u.ar.Reset(mark)
}

// sumKeysTogether brings all keys into the sum of c.
func (u linearForm[T]) sumKeysTogether(c *orderedScan[T]) {
	c.extend(u.headTask, pieces(u.m, u.tokens()), scanPart[T]{add: func(s *chunkScan[T], i int, m *features.Moments[T]) {
		s.clearChunk()
		s.absorbKeys(i*s.c, min((i+1)*s.c, s.u.m))
		s.group().addOpenChunk(m)
	}})
}

func (u linearForm[T]) linearForwardTogether() {
	c := &orderedScan[T]{u.moments(u.walker, u.takeScratch)}
	if u.causal {
		for g := range u.q {
			u.clearUnseen(g, 0, min(-u.offset, u.n))
		}
		n := pieces(u.n+u.offset, u.tokens())
		c.extend(u.headTask, n, scanPart[T]{
			add: func(s *chunkScan[T], i int, m *features.Moments[T]) {
				if s.group().openChunk(i); i < n-1 {
					s.group().addOpenChunk(m)
				}
			},
			fade: func(s *chunkScan[T]) T { return s.decay().chunkDecay() },
			read: func(s *chunkScan[T], i int, m *features.Moments[T]) {
				_, _, i0, i1 := s.u.linear().chunkBounds(i*s.c, s.c)
				s.moments = *m
				s.answerQueries(i0, i1, i0+s.u.offset-i*s.c)
			},
		})
		return
	}
	u.sumKeysTogether(c)
	if u.savedMoments != nil {
		*u.savedMoments = append(append((*u.savedMoments)[:0], c.sum.S...), c.sum.Z[:u.walker.Count]...)
	}
	u.runParallel(pieces(u.n, u.tokens()), 0, func(u *headTask[T], t *tokenGroup) {
		s := u.linear().memberScan()
		s.group().beginChunk(u.m)
		s.moments = c.sum
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			s.answerQueries(i*s.c, min((i+1)*s.c, u.n), 0)
		}
	})
}

func (u linearForm[T]) linearBackwardTogether() {
	sums := &orderedScan[T]{u.moments(u.walker, u.takeScratch)}
	back := &orderedScan[T]{u.moments(u.walker, u.takeScratch)}
	if u.causal {
		u.causalBackwardTogether(sums, back)
		return
	}
	if n := len(sums.sum.S); u.m > 0 && u.savedMoments != nil && len(*u.savedMoments) == n+u.walker.Count {
		sums.sum.S, sums.sum.Z, sums.sum.NonEmpty = (*u.savedMoments)[:n], (*u.savedMoments)[n:], true
	} else {
		u.sumKeysTogether(sums)
	}
	group, n := len(u.q), pieces(u.n, u.tokens())
	parts := u.scaleParts(n)
	back.extend(u.headTask, n*group, scanPart[T]{add: func(s *chunkScan[T], i int, m *features.Moments[T]) {
		i, g := i/group, i%group
		s.moments = sums.sum
		s.u.scalePart(parts, i)
		s.grad().backQueries(g, i*s.c, min((i+1)*s.c, s.u.n), 0, nil, m)
	}})
	u.sumScale(parts)
	u.runParallel(pieces(u.m, u.tokens()), 0, func(u *headTask[T], t *tokenGroup) {
		s := u.linear().memberScan()
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			j0, j1 := i*s.c, min((i+1)*s.c, u.m)
			u.linear().clearValues(j0, j1)
			s.grad().backKeys(&back.sum, j0, j1, tensor.Mat[T]{})
		}
	})
}

func (u linearForm[T]) causalBackwardTogether(sums, back *orderedScan[T]) {
	for g := range u.q {
		for i := range min(-u.offset, u.n) {
			clear(u.dq[g].Row(i))
		}
	}
	n := pieces(u.positionCount(), u.tokens())
	if n == 0 {
		return
	}
	db := u.pendingKeyGrad()
	parts := u.scaleParts(n)
	sums.extend(u.headTask, n, scanPart[T]{
		add: func(s *chunkScan[T], i int, m *features.Moments[T]) {
			if s.group().openChunk(i); i < n-1 {
				s.group().addOpenChunk(m)
			}
		},
		fade: func(s *chunkScan[T]) T { return s.decay().chunkDecay() },
		read: func(s *chunkScan[T], i int, m *features.Moments[T]) {
			j0, j1, i0, i1 := s.u.linear().chunkBounds(i*s.c, s.c)
			s.moments = *m
			s.u.scalePart(parts, i)
			s.u.linear().clearValues(j0, j1)
			s.grad().backChunk(j0, i0, i1, i0+s.u.offset-i*s.c, db)
		},
	})
	u.sumScale(parts)
	// In the backward direction a chunk's keys meet the later queries. Then its own
	// queries join these, head by head. The queries of the first chunk are not needed.
	group := len(u.q)
	back.extend(u.headTask, (n-1)*group+1, scanPart[T]{
		add: func(s *chunkScan[T], i int, m *features.Moments[T]) {
			if c := n - 1 - i/group; c > 0 {
				_, _, i0, i1 := s.u.linear().chunkBounds(c*s.c, s.c)
				s.group().openChunkAges(c)
				s.grad().sumQueries(m, i%group, i0, i1, i0+s.u.offset-c*s.c)
			}
			if i%group > 0 || i/group == n-1 {
				s.clearChunk() // its chunk ages what comes before once
			}
		},
		fade: func(s *chunkScan[T]) T { return s.decay().chunkDecay() },
		read: func(s *chunkScan[T], i int, m *features.Moments[T]) {
			if i%group == 0 {
				j0, j1, _, _ := s.u.linear().chunkBounds((n-1-i/group)*s.c, s.c)
				s.grad().backKeys(m, j0, j1, db)
			}
		},
	})
}

// runTogether is run for the whole chunks of keys from key j on, where none is
// open. It returns the key after them.
func (s groupScan[T]) runTogether(j int) int {
	u, c := s.u, &orderedScan[T]{s.moments}
	n := (u.m - j) / s.c
	var gone []float64 // over each chunk
	if s.ages != nil {
		gone = arena.Take[float64](u.ar, n)
	}
	p := scanPart[T]{fade: func(s *chunkScan[T]) T { return s.decay().chunkDecay() }, add: func(t *chunkScan[T], i int, m *features.Moments[T]) {
		j0 := j + i*t.c
		if s.ages != nil && t.ages == nil {
			t.ages = t.u.decay().takeAges(t.c)
		}
		t.pendingLogDecay = s.pendingLogDecay
		if t.group().beginChunk(j0); s.first != unseen {
			t.first = -1
		}
		t.absorbKeys(j0, j0+t.c)
		t.group().addOpenChunk(m)
		if gone != nil {
			gone[i] = t.ages.sumBetween(-1, t.c-1)
		}
	}}
	if u.n > 0 {
		p.read = func(t *chunkScan[T], i int, m *features.Moments[T]) {
			t.moments = *m
			t.answerQueries(j+i*t.c, j+(i+1)*t.c, 0)
		}
	}
	c.extend(u, n, p)
	s.moments = c.sum
	end := j + n*s.c
	for _, sum := range gone {
		s.ages.forgotten += sum
	}
	s.decay().recede(end)
	if u.mask == nil || slices.Contains(u.mask[j:end], true) {
		s.first = -1
	}
	return end
}

// readTogether is run for queries alone: members share the state of the scan, which
// they do not change.
func (s groupScan[T]) readTogether() {
	u := s.u
	u.runParallel(pieces(u.n, s.c), 0, func(u *headTask[T], t *tokenGroup) {
		mine := *s.chunkScan
		mine.u, mine.m = u, u.walker
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			mine.answerQueries(i*s.c, min((i+1)*s.c, u.n), s.n)
		}
	})
}
