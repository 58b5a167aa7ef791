package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/tensor"
)

// recurrentState is the state of a kernel polynomial: for each key head the moments of
// the closed chunks, and the keys and values of the open one. Chunks end at
// multiples of their size from the first token on, however tokens arrive, so
// neither the moments nor the outputs depend on the pieces.
type recurrentState[T tensor.Float] struct {
	e      *engine[T]
	shape  Shape
	tokens int64
	heads  []*headtask.Scan[T] // [B·Hkv]

	moments        blocks[T] // of the heads
	byHead         bool      // rows of a head lie together, not rows of a batch row
	hasClosedCount bool      // every head has moments and nothing else: see even

	noticed headtask.RowNotices
}

// blocks are pieces of memory of one size, each from one cache line to another.
type blocks[T tensor.Float] struct {
	data []T
	size int
}

func makeBlocks[T tensor.Float](n, size int) blocks[T] {
	size = kernel.Pad(size)
	b := blocks[T]{make([]T, n*size), size}
	arena.AdviseHugePages(b.data)
	return b
}

// slice returns the first n elements of piece i.
func (b *blocks[T]) slice(i, n int) []T { return b.data[i*b.size:][:n:n] }

// window returns the tokens of a chunk of a state for width d. Most steps read
// the moments and only the last of a chunk writes them, so that few tokens are
// enough; more would be more to read pair by pair. Moments of degree 1 are no
// more than the keys and values of D/2 tokens, and cheap to write: there it pays
// to close early.
func (e *engine[T]) window(d, wish int) int {
	switch {
	case wish > 0:
		return wish
	case e.spec.Degree() == 1:
		return 16
	}
	return min(e.forms().chunk(d, 0), 96)
}

// stateBytes is what a state of shape s holds without tokens.
func (e *engine[T]) stateBytes(s Shape) float64 {
	if e.spec.IsPairwise() || s.D < 1 || s.Dv < 1 {
		return 0
	}
	w := e.spec.Width(s.D)
	c, features, ld := e.window(s.D, s.Chunk), float64(e.spec.CountFeatures(w)), float64(kernel.Pad(s.Dv))
	sums := features*(ld+1) + float64(kernel.Lanes) - 1
	if s.Carry == Compensated {
		sums *= 2
	}
	chunk := float64(w+1)*float64(scratch.Stride[T](c)) + float64(c)*ld
	heads, size := float64(s.B)*float64(s.Hkv), float64(scratch.ElementSize[T]())
	if heads == 0 {
		return 0
	}
	return heads*((sums+chunk)*size+float64(c)) + features*size // whose weights all heads share
}

func newRecurrentState[T tensor.Float](e *engine[T], s Shape) *recurrentState[T] {
	s.Chunk = e.window(s.D, s.Chunk)
	n := s.B * s.Hkv
	st := &recurrentState[T]{e: e, shape: s, heads: make([]*headtask.Scan[T], n), byHead: s.Chunk == 1 && e.canFuseSteps(&s)}
	// A step reads all arrays of a head and then all arrays of the next head: they lie
	// in memory in that order.
	streams, exist := make([]headtask.Scan[T], n), make([]bool, n*s.Chunk)
	var kinds []blocks[T]
	for i := range st.heads {
		u, h := e.stateUnit(&s), &streams[i]
		u.Noticed = &st.noticed
		u.Monomials, u.Chunk = e.newMonomials(e.spec.Width(s.D)), s.Chunk
		h.Valid, exist = exist[:0:s.Chunk], exist[s.Chunk:]
		kind, at := 0, i
		if st.byHead {
			at = i%s.Hkv*s.B + i/s.Hkv
		}
		take := func(size int) []T {
			if i == 0 {
				kinds = append(kinds, makeBlocks[T](n, size))
			}
			kind++
			return kinds[kind-1].slice(at, size)
		}
		st.heads[i] = h.Start(u, u.Monomials, s.Chunk, take)
		if s.Carry == Compensated {
			h.Moments.Compensate(take)
		}
	}
	if n > 0 {
		st.moments = kinds[0]
	}
	return st
}

func (s *recurrentState[T]) Absorb(c *Call[T]) error { return CheckedAbsorb(c, s) }

func (s *recurrentState[T]) Read(out tensor.Heads[T], c *Call[T]) error {
	return CheckedRead(out, c, s)
}

func (s *recurrentState[T]) Step(out tensor.Heads[T], c *Call[T]) error {
	return CheckedStep(out, c, s)
}

func (s *recurrentState[T]) StateShape() *Shape { return &s.shape }

// MomentsOf returns the sums of key head i, counted over the whole batch.
func (s *recurrentState[T]) MomentsOf(i int) *features.Moments[T] { return &s.heads[i].Moments }

func (s *recurrentState[T]) watch() *headtask.RowNotices { return &s.noticed }

func (s *recurrentState[T]) Refuse(c *Call[T]) error { return s.e.checks().refuseFading(c) }

// Run takes in m keys and answers n queries in every head.
func (s *recurrentState[T]) Run(out tensor.Heads[T], c *Call[T], n, m int) {
	sh := &s.shape
	_, work := s.e.forms().countOperations(n, m, sh.D, sh.Dv, true, sh.Chunk)
	if max(n, m) == 1 {
		// Reading goes at the speed of memory, about half of the peak, and the
		// last token of a chunk brings all of it into the moments.
		work = 2 * s.e.forms().countSumOperations(n, sh.D, sh.Dv)
		if m > 0 && s.heads[0].Count+1 == sh.Chunk {
			work += s.e.forms().countSumOperations(sh.Chunk, sh.D, sh.Dv)
		}
	}
	work *= float64(sh.B * sh.H)
	ar := arena.Acquire()
	defer ar.Release()
	if s.e.spec.BuiltinDecay != nil && m > 0 {
		c = s.e.withBuiltinDecay(ar, c)
	}
	if c.HasDecay() {
		s.startAges()
	}
	s.hasClosedCount = n == m && c.KeyMask == nil && !c.HasDecay() && s.allHeadsClosed()
	var rows tokenRows[T]
	if max(n, m) == 1 {
		rows = s.e.tokenRows(ar, sh, c, n, m)
		rows.byHead = s.hasClosedCount
	} else {
		for _, st := range s.heads {
			st.Task.Workers = headtask.CountWorkers(len(s.heads), work, work)
		}
	}
	runHeads(len(s.heads), work, stateHeads[T]{s, out, c, n, m, rows})
	s.tokens += int64(m)
}

// startAges has the state count ages from now on.
func (s *recurrentState[T]) startAges() {
	for _, st := range s.heads {
		st.Decay().StartAges()
	}
}

// decays reports that the state has met a decay.
func (s *recurrentState[T]) decays() bool { return len(s.heads) > 0 && s.heads[0].Decays != nil }

// do is run for key heads lo ≤ i < hi; a single token has its prepared rows in
// rows.
func (s *recurrentState[T]) do(lo, hi int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	if rows.x != nil && s.hasClosedCount {
		s.fuseStepHeads(lo, hi, out, c, rows)
		return
	}
	if rows.x != nil && s.isDegree1() {
		s.stepDegree1(lo, hi, out, c, n, m, rows)
		return
	}
	for i := lo; i < hi; i++ {
		s.head(i, out, c, n, m, rows)
	}
}

// head is do for key head i.
func (s *recurrentState[T]) head(i int, out tensor.Heads[T], c *Call[T], n, m int, rows tokenRows[T]) {
	ar := arena.Acquire()
	defer ar.Release()
	st := s.heads[i]
	bindState(st.Task, ar, &s.shape, i, out, c, n, m)
	if rows.x == nil {
		st.Run()
		return
	}
	st.StepToken(rows.key(i*m), rows.query(i*len(st.Task.Q)*n), rows.ld)
}

func (s *recurrentState[T]) Clone() State[T] {
	c := newRecurrentState(s.e, s.shape)
	c.tokens = s.tokens
	for i, from := range s.heads {
		c.heads[i].CopyFrom(from)
	}
	return c
}

func (s *recurrentState[T]) Reset() {
	s.tokens, s.hasClosedCount = 0, false
	for _, st := range s.heads {
		st.Moments.NonEmpty = false
		st.First, st.Decays = headtask.Unseen, nil
		st.ClearChunk()
	}
}

func (s *recurrentState[T]) Tokens() int64 { return s.tokens }

func (s *recurrentState[T]) Bytes() int64 {
	var elements, flags int
	var ages int64
	for i, st := range s.heads {
		ages += st.Decays.Bytes()
		if i == 0 {
			elements = len(st.Monomials.Weights) // all heads share them
		}
		elements += len(st.Moments.S) + len(st.Moments.Z) + len(st.X) + len(st.Room)
		if low := st.Moments.Residual; low != nil {
			elements += len(low.S) + len(low.Z)
		}
		flags += len(st.Valid)
	}
	return int64(elements)*scratch.ElementSize[T]() + int64(flags) + ages
}

// AppendBinary appends a snapshot, whose size does not depend on the tokens
// absorbed. After the header it holds for each key head the number of keys of
// its open chunk; flags that chunks have been closed, and that a key of them
// exists; the moments, z and s [Dv] of every feature, and where they are
// compensated as many numbers again, what they leave out; and of the open chunk
// the flags of its keys [C], the prepared keys [da, C] and the values [C, Dv].
// What is not there yet is zero. With decay the ages of the open chunk follow.
func (s *recurrentState[T]) AppendBinary(b []byte) ([]byte, error) {
	w := NewSnapshot[T](b, s.e.identity(), s.e.parameterSum(), &s.shape, s.tokens, s.decays())
	s.write(w)
	return w.End(), nil
}

// write appends what follows the header.
func (s *recurrentState[T]) write(w *snapshot.Writer) {
	zeros := make([]T, max(s.shape.Chunk, s.shape.Dv))
	for _, st := range s.heads {
		rest := s.shape.Chunk - st.Count
		p := &st.Moments
		w.Int(int64(st.Count))
		w.Flags([]bool{p.NonEmpty, st.First < 0})
		for _, half := range p.Halves() {
			for f := range st.Monomials.Count {
				z, row := zeros[:1], zeros[:s.shape.Dv]
				if p.NonEmpty {
					z, row = half.Z[f:][:1], half.S[f*p.Stride:][:s.shape.Dv]
				}
				snapshot.WriteElements(w, z)
				snapshot.WriteElements(w, row)
			}
		}
		w.Flags(st.Valid[:st.Count])
		w.Flags(make([]bool, rest))
		for c := 1; c <= st.Task.PreparedWidth; c++ {
			snapshot.WriteElements(w, st.X[c*st.ColumnStride:][:st.Count])
			snapshot.WriteElements(w, zeros[:rest])
		}
		for j := range s.shape.Chunk {
			if j < st.Count {
				snapshot.WriteElements(w, st.V[j*p.Stride:][:s.shape.Dv])
			} else {
				snapshot.WriteElements(w, zeros[:s.shape.Dv])
			}
		}
		if st.Decays != nil {
			st.Decays.Write(w, st.ChunkSize)
		}
	}
}

// restoreSums reads what write wrote.
func restoreSums[T tensor.Float](e *engine[T], s Shape, tokens int64, r *snapshot.Reader) (*recurrentState[T], error) {
	width, chunk := float64(e.spec.Width(s.D)), float64(s.Chunk)
	moments := float64(e.spec.CountFeatures(e.spec.Width(s.D))) * float64(s.Dv+1)
	if s.Carry == Compensated {
		moments *= 2
	}
	head := 8 + 2 + chunk + (moments+chunk*(width+float64(s.Dv)))*float64(scratch.ElementSize[T]())
	if r.Decay {
		head += headtask.AgesBytes(chunk)
	}
	if err := r.Need(float64(s.B) * float64(s.Hkv) * head); err != nil {
		return nil, err
	}
	if s.Chunk == 0 {
		r.Fail("a chunk has no tokens")
		return nil, r.Err
	}
	c := newRecurrentState(e, s)
	c.tokens = tokens
	for i, st := range c.heads {
		n := r.Int()
		if n < 0 || n >= int64(s.Chunk) || n > tokens {
			r.Fail("head %d has %d keys in its open chunk: chunks have %d, the state has %d tokens", i, n, s.Chunk, tokens)
			return nil, r.Err
		}
		p := &st.Moments
		var before [2]bool
		r.Flags(before[:])
		p.NonEmpty = before[0]
		if before[1] {
			st.First = -1
			if !p.NonEmpty {
				r.Fail("head %d has a key in a closed chunk, and no closed chunk", i)
			}
		}
		for _, half := range p.Halves() {
			for f := range st.Monomials.Count {
				snapshot.ReadElements(r, half.Z[f:][:1])
				snapshot.ReadElements(r, half.S[f*p.Stride:][:s.Dv])
			}
		}
		r.Flags(st.Valid)
		for a := 1; a <= st.Task.PreparedWidth; a++ {
			snapshot.ReadElements(r, st.X[a*st.ColumnStride:][:s.Chunk])
		}
		for j := range s.Chunk {
			snapshot.ReadElements(r, st.V[j*p.Stride:][:s.Dv])
		}
		for _, exists := range st.Valid[:n] {
			st.AppendToken(exists)
		}
		if r.Decay {
			st.Decays = headtask.ReadAges(r, st.Count, st.ChunkSize)
		}
	}
	return c, r.Err
}
