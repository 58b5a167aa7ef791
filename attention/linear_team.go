package attention

import (
	"slices"

	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/tensor"
)

// The linear form of a unit that several workers do together: the chunks of
// linearForward and linearBackward, each with the same operations.

// tokens returns the tokens of a chunk.
func (u *unit[T]) tokens() int { return min(u.chunk, max(u.n, u.m, 1)) }

// memberStream returns a stream for chunks of its unit anywhere.
func (u *unit[T]) memberStream() *stream[T] {
	s := newStream(u, u.walker, u.tokens(), u.take)
	s.lent = true
	if u.mask != nil {
		s.lead = slices.Index(u.mask, true)
	}
	if len(u.logG.Data) > 0 {
		s.ages = u.takeAges(s.c)
	}
	return s
}

// begin opens a chunk after j keys of the unit.
func (s *stream[T]) begin(j int) {
	s.drop()
	s.first = unseen
	if 0 <= s.lead && s.lead < j {
		s.first = -1
	}
	s.recede(j)
}

// open opens chunk i of a causal sequence.
func (s *stream[T]) open(i int) {
	j0, j1, _, _ := s.u.span(i*s.c, s.c)
	s.begin(j0)
	s.take(j0, j1)
}

// openAges is open for the ages of a chunk alone.
func (s *stream[T]) openAges(i int) {
	if s.ages == nil {
		return
	}
	j0, j1, _, _ := s.u.span(i*s.c, s.c)
	s.begin(j0)
	s.age(j0, j1)
	s.n = j1 - j0
}

// enter adds the open chunk to m.
func (s *stream[T]) enter(m *features.Moments[T]) {
	if s.n == 0 {
		return
	}
	mark := s.u.ar.Mark()
	v, ldv, w := s.agedKeys()
	m.AddTokens(s.u.ar, s.m, s.x, s.ld, s.n, v, ldv, w)
	s.u.ar.Reset(mark)
}

// sumKeysTogether brings all keys into the sum of c.
func (u *unit[T]) sumKeysTogether(c *chain[T]) {
	c.extend(u, pieces(u.m, u.tokens()), part[T]{add: func(s *stream[T], i int, m *features.Moments[T]) {
		s.drop()
		s.take(i*s.c, min((i+1)*s.c, s.u.m))
		s.enter(m)
	}})
}

func (u *unit[T]) linearForwardTogether() {
	c := &chain[T]{u.moments(u.walker, u.take)}
	if u.causal {
		for g := range u.q {
			u.unseen(g, 0, min(-u.off, u.n))
		}
		n := pieces(u.n+u.off, u.tokens())
		c.extend(u, n, part[T]{
			add: func(s *stream[T], i int, m *features.Moments[T]) {
				if s.open(i); i < n-1 {
					s.enter(m)
				}
			},
			fade: (*stream[T]).left,
			read: func(s *stream[T], i int, m *features.Moments[T]) {
				_, _, i0, i1 := s.u.span(i*s.c, s.c)
				s.past = *m
				s.read(i0, i1, i0+s.u.off-i*s.c)
			},
		})
		return
	}
	u.sumKeysTogether(c)
	if u.past != nil {
		*u.past = append(append((*u.past)[:0], c.sum.S...), c.sum.Z[:u.walker.Count]...)
	}
	u.together(pieces(u.n, u.tokens()), 0, func(u *unit[T], t *team) {
		s := u.memberStream()
		s.begin(u.m)
		s.past = c.sum
		for i := t.take(); i < t.n; i = t.take() {
			s.read(i*s.c, min((i+1)*s.c, u.n), 0)
		}
	})
}

func (u *unit[T]) linearBackwardTogether() {
	sums := &chain[T]{u.moments(u.walker, u.take)}
	back := &chain[T]{u.moments(u.walker, u.take)}
	if u.causal {
		u.causalBackwardTogether(sums, back)
		return
	}
	if n := len(sums.sum.S); u.m > 0 && u.past != nil && len(*u.past) == n+u.walker.Count {
		sums.sum.S, sums.sum.Z, sums.sum.NonEmpty = (*u.past)[:n], (*u.past)[n:], true
	} else {
		u.sumKeysTogether(sums)
	}
	group, n := len(u.q), pieces(u.n, u.tokens())
	parts := u.scaleParts(n)
	back.extend(u, n*group, part[T]{add: func(s *stream[T], i int, m *features.Moments[T]) {
		i, g := i/group, i%group
		s.past = sums.sum
		s.u.scalePart(parts, i)
		s.backQueries(g, i*s.c, min((i+1)*s.c, s.u.n), 0, nil, m)
	}})
	u.sumScale(parts)
	u.together(pieces(u.m, u.tokens()), 0, func(u *unit[T], t *team) {
		s := u.memberStream()
		for i := t.take(); i < t.n; i = t.take() {
			j0, j1 := i*s.c, min((i+1)*s.c, u.m)
			u.clearValues(j0, j1)
			s.backKeys(&back.sum, j0, j1, tensor.Mat[T]{})
		}
	})
}

func (u *unit[T]) causalBackwardTogether(sums, back *chain[T]) {
	for g := range u.q {
		for i := range min(-u.off, u.n) {
			clear(u.dq[g].Row(i))
		}
	}
	n := pieces(u.end(), u.tokens())
	if n == 0 {
		return
	}
	db := u.waiting()
	parts := u.scaleParts(n)
	sums.extend(u, n, part[T]{
		add: func(s *stream[T], i int, m *features.Moments[T]) {
			if s.open(i); i < n-1 {
				s.enter(m)
			}
		},
		fade: (*stream[T]).left,
		read: func(s *stream[T], i int, m *features.Moments[T]) {
			j0, j1, i0, i1 := s.u.span(i*s.c, s.c)
			s.past = *m
			s.u.scalePart(parts, i)
			s.u.clearValues(j0, j1)
			s.backChunk(j0, i0, i1, i0+s.u.off-i*s.c, db)
		},
	})
	u.sumScale(parts)
	// In the backward direction a chunk's keys meet the later queries. Then its own
	// queries join these, head by head. The queries of the first chunk are not needed.
	group := len(u.q)
	back.extend(u, (n-1)*group+1, part[T]{
		add: func(s *stream[T], i int, m *features.Moments[T]) {
			if c := n - 1 - i/group; c > 0 {
				_, _, i0, i1 := s.u.span(c*s.c, s.c)
				s.openAges(c)
				s.sumQueries(m, i%group, i0, i1, i0+s.u.off-c*s.c)
			}
			if i%group > 0 || i/group == n-1 {
				s.drop() // its chunk ages what comes before once
			}
		},
		fade: (*stream[T]).left,
		read: func(s *stream[T], i int, m *features.Moments[T]) {
			if i%group == 0 {
				j0, j1, _, _ := s.u.span((n-1-i/group)*s.c, s.c)
				s.backKeys(m, j0, j1, db)
			}
		},
	})
}

// runTogether is run for the whole chunks of keys from key j on, where none is
// open. It returns the key after them.
func (s *stream[T]) runTogether(j int) int {
	u, c := s.u, &chain[T]{s.past}
	n := (u.m - j) / s.c
	var gone []float64 // over each chunk
	if s.ages != nil {
		gone = arena.Take[float64](u.ar, n)
	}
	p := part[T]{fade: (*stream[T]).left, add: func(t *stream[T], i int, m *features.Moments[T]) {
		j0 := j + i*t.c
		if s.ages != nil && t.ages == nil {
			t.ages = t.u.takeAges(t.c)
		}
		t.owed = s.owed
		if t.begin(j0); s.first != unseen {
			t.first = -1
		}
		t.take(j0, j0+t.c)
		t.enter(m)
		if gone != nil {
			gone[i] = t.ages.between(-1, t.c-1)
		}
	}}
	if u.n > 0 {
		p.read = func(t *stream[T], i int, m *features.Moments[T]) {
			t.past = *m
			t.read(j+i*t.c, j+(i+1)*t.c, 0)
		}
	}
	c.extend(u, n, p)
	s.past = c.sum
	end := j + n*s.c
	for _, sum := range gone {
		s.ages.gone += sum
	}
	s.recede(end)
	if u.mask == nil || slices.Contains(u.mask[j:end], true) {
		s.first = -1
	}
	return end
}

// readTogether is run for queries alone: members share the state of the stream, which
// they do not change.
func (s *stream[T]) readTogether() {
	u := s.u
	u.together(pieces(u.n, s.c), 0, func(u *unit[T], t *team) {
		mine := *s
		mine.u, mine.m = u, u.walker
		for i := t.take(); i < t.n; i = t.take() {
			mine.read(i*s.c, min((i+1)*s.c, u.n), s.n)
		}
	})
}
