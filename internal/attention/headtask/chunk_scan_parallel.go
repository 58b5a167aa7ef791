package headtask

import (
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
)

// The linear form of a task that several workers do together: the chunks of
// linearForward and linearBackward, each with the same operations.

// tokens returns the tokens of a chunk.
func (u *Geometry) tokens() int { return min(u.Chunk, max(u.N, u.M, 1)) }

// memberScan returns a scan for chunks of its task anywhere.
func (u *Task) memberScan() *Scan {
	s := newChunkScan(u, u.Monomials, u.tokens(), u.TakeScratch)
	s.usesCallValues = true
	if u.Mask != nil {
		s.lead = slices.Index(u.Mask, true)
	}
	if len(u.LogG.Data) > 0 {
		s.Decays = u.takeAges(s.ChunkSize)
	}
	return s
}

// beginChunk opens a chunk after j keys of the task.
func (s *Scan) beginChunk(j int) {
	s.ClearChunk()
	s.First = Unseen
	if 0 <= s.lead && s.lead < j {
		s.First = -1
	}
	s.Recede(j)
}

// chunk returns chunk i of a causal sequence.
func (s *Scan) chunk(i int) chunkRange {
	return s.Task.chunkAt(i*s.ChunkSize, s.ChunkSize, s.Task.PositionCount())
}

// openChunk opens chunk i of a causal sequence.
func (s *Scan) openChunk(i int) {
	x := s.chunk(i)
	s.beginChunk(x.j0)
	s.AbsorbKeys(x.j0, x.j1)
}

// openChunkAges is open for the ages of a chunk alone.
func (s *Scan) openChunkAges(i int) {
	if s.Decays == nil {
		return
	}
	x := s.chunk(i)
	s.beginChunk(x.j0)
	s.age(x.j0, x.j1)
	s.Count = x.j1 - x.j0
}

// addOpenChunk adds the open chunk to m.
func (s *Scan) addOpenChunk(m *features.Moments) {
	if s.Count == 0 {
		return
	}
	mark := s.Task.Arena.Mark()
	v, ldv, w := s.agedKeys()
	m.AddTokens(s.Task.Arena, s.Monomials, s.X, s.ColumnStride, s.Count, v, ldv, w)
	s.Task.Arena.Reset(mark)
}

// sumKeysTogether brings all keys into the sum of c.
func (u *Task) sumKeysTogether(c *orderedScan) {
	c.extend(u, pieces(u.M, u.tokens()), scanPart{add: func(s *Scan, i int, m *features.Moments) {
		s.ClearChunk()
		s.AbsorbKeys(i*s.ChunkSize, min((i+1)*s.ChunkSize, s.Task.M))
		s.addOpenChunk(m)
	}})
}

func (u *Task) linearForwardTogether() {
	c := &orderedScan{u.Moments(u.Monomials, u.TakeScratch)}
	if u.Causal {
		for g := range u.Q {
			u.ClearUnseen(g, 0, min(-u.Offset, u.N))
		}
		n := pieces(u.N+u.Offset, u.tokens())
		c.extend(u, n, scanPart{
			add: func(s *Scan, i int, m *features.Moments) {
				if s.openChunk(i); i < n-1 {
					s.addOpenChunk(m)
				}
			},
			fade: func(s *Scan) float { return s.ChunkDecay() },
			read: func(s *Scan, i int, m *features.Moments) {
				x := s.chunk(i)
				s.Moments = *m
				s.AnswerQueries(x.i0, x.i1, x.diag)
			},
		})
		return
	}
	u.sumKeysTogether(c)
	if u.SavedMoments != nil {
		*u.SavedMoments = append(append((*u.SavedMoments)[:0], c.sum.S...), c.sum.Z[:u.Monomials.Count]...)
	}
	u.runParallel(pieces(u.N, u.tokens()), 0, func(u *Task, t *tokenGroup) {
		s := u.memberScan()
		s.beginChunk(u.M)
		s.Moments = c.sum
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			s.AnswerQueries(i*s.ChunkSize, min((i+1)*s.ChunkSize, u.N), 0)
		}
	})
}

func (u *Task) linearBackwardTogether() {
	sums := &orderedScan{u.Moments(u.Monomials, u.TakeScratch)}
	back := &orderedScan{u.Moments(u.Monomials, u.TakeScratch)}
	if u.Causal {
		u.causalBackwardTogether(sums, back)
		return
	}
	if n := len(sums.sum.S); u.M > 0 && u.SavedMoments != nil && len(*u.SavedMoments) == n+u.Monomials.Count {
		sums.sum.S, sums.sum.Z, sums.sum.NonEmpty = (*u.SavedMoments)[:n], (*u.SavedMoments)[n:], true
	} else {
		u.sumKeysTogether(sums)
	}
	group, n := len(u.Q), pieces(u.N, u.tokens())
	parts := u.scaleParts(n)
	back.extend(u, n*group, scanPart{add: func(s *Scan, i int, m *features.Moments) {
		i, g := i/group, i%group
		s.Moments = sums.sum
		s.Task.scalePart(parts, i)
		s.BackQueries(g, i*s.ChunkSize, min((i+1)*s.ChunkSize, s.Task.N), 0, nil, m)
	}})
	u.sumScale(parts)
	own := u.keyGrads()
	u.runParallel(pieces(u.M, u.tokens()), 0, func(u *Task, t *tokenGroup) {
		s := u.memberScan()
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			x := chunkRange{pos: i * s.ChunkSize, j0: i * s.ChunkSize, j1: min((i+1)*s.ChunkSize, u.M)}
			u.clearValues(x.j0, x.j1)
			s.reopen(x, nil)
			s.backKeys(&back.sum, x, &own)
		}
	})
}

func (u *Task) causalBackwardTogether(sums, back *orderedScan) {
	u.clearUnseenGrads()
	n := pieces(u.PositionCount(), u.tokens())
	if n == 0 {
		return
	}
	own := u.keyGrads()
	parts := u.scaleParts(n)
	sums.extend(u, n, scanPart{
		add: func(s *Scan, i int, m *features.Moments) {
			if s.openChunk(i); i < n-1 {
				s.addOpenChunk(m)
			}
		},
		fade: func(s *Scan) float { return s.ChunkDecay() },
		read: func(s *Scan, i int, m *features.Moments) {
			x := s.chunk(i)
			s.Moments = *m
			s.Task.scalePart(parts, i)
			s.Task.clearValues(x.j0, x.j1)
			s.backChunk(x, s.Task.N, &own)
		},
	})
	u.sumScale(parts)
	// In the backward direction a chunk's keys read the sums of later queries. Then its own
	// queries are added to these sums, head by head. The queries of the first chunk are not
	// needed.
	group := len(u.Q)
	back.extend(u, (n-1)*group+1, scanPart{
		add: func(s *Scan, i int, m *features.Moments) {
			if c := n - 1 - i/group; c > 0 {
				x := s.chunk(c)
				s.openChunkAges(c)
				s.SumQueries(m, i%group, x.i0, x.i1, x.diag)
			}
			if i%group > 0 || i/group == n-1 {
				s.ClearChunk() // its chunk ages what comes before once
			}
		},
		fade: func(s *Scan) float { return s.ChunkDecay() },
		read: func(s *Scan, i int, m *features.Moments) {
			if i%group == 0 {
				x := s.chunk(n - 1 - i/group)
				s.reopen(x, nil)
				s.backKeys(m, x, &own)
			}
		},
	})
}

// runTogether is Run for the whole chunks of keys from key j on, if no chunk is open. It
// returns the key after them.
func (s *Scan) runTogether(j int) int {
	u, c := s.Task, &orderedScan{s.Moments}
	n := (u.M - j) / s.ChunkSize
	var gone []float64 // over each chunk
	if s.Decays != nil {
		gone = arena.Take[float64](u.Arena, n)
	}
	p := scanPart{fade: func(s *Scan) float { return s.ChunkDecay() }, add: func(t *Scan, i int, m *features.Moments) {
		j0 := j + i*t.ChunkSize
		if s.Decays != nil && t.Decays == nil {
			t.Decays = t.Task.takeAges(t.ChunkSize)
		}
		t.PendingLogDecay = s.PendingLogDecay
		if t.beginChunk(j0); s.First != Unseen {
			t.First = -1
		}
		t.AbsorbKeys(j0, j0+t.ChunkSize)
		t.addOpenChunk(m)
		if gone != nil {
			gone[i] = t.Decays.SumBetween(-1, t.ChunkSize-1)
		}
	}}
	if u.N > 0 {
		p.read = func(t *Scan, i int, m *features.Moments) {
			t.Moments = *m
			t.AnswerQueries(j+i*t.ChunkSize, j+(i+1)*t.ChunkSize, 0)
		}
	}
	c.extend(u, n, p)
	s.Moments = c.sum
	end := j + n*s.ChunkSize
	for _, sum := range gone {
		s.Decays.Forgotten += sum
	}
	s.Recede(end)
	if u.Mask == nil || slices.Contains(u.Mask[j:end], true) {
		s.First = -1
	}
	return end
}

// readTogether is Run for queries without keys. The workers share the state of the scan, which
// they do not change.
func (s *Scan) readTogether() {
	u := s.Task
	u.runParallel(pieces(u.N, s.ChunkSize), 0, func(u *Task, t *tokenGroup) {
		mine := *s
		mine.Task, mine.Monomials = u, u.Monomials
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			mine.AnswerQueries(i*s.ChunkSize, min((i+1)*s.ChunkSize, u.N), s.Count)
		}
	})
}
