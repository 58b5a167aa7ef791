package engine

import (
	"unsafe"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// RecurrentState is the state of a kernel polynomial. For each key head it holds the moments of
// the closed chunks, and the keys and values of the open chunk. Chunks end at multiples of
// their size from the first token on, so that neither the moments nor the outputs depend on how
// tokens are divided into calls.
type RecurrentState struct {
	Engine     *Engine
	Shape      attention.Shape
	TokenCount int64
	Heads      []*headtask.Scan // [B·Hkv]

	moments        blocks // of the heads
	held           int64  // bytes of all blocks
	bytes          int64  // Bytes without log-decays: each step asks for it
	byHead         bool   // rows of a head lie together, not rows of a batch row
	HasClosedCount bool   // all heads hold only moments; see allHeadsClosed

	noticed headtask.RowNotices
}

// blocks are pieces of memory of one size, each from one cache line to another.
type blocks struct {
	data []float
	size int
}

func makeBlocks(n, size int) blocks {
	size = kernel.Pad(size)
	b := blocks{make([]float, n*size), size}
	arena.AdviseHugePages(b.data)
	return b
}

// slice returns the first n elements of piece i.
func (b *blocks) slice(i, n int) []float { return b.data[i*b.size:][:n:n] }

// NewRecurrentState returns a state of e without tokens.
func NewRecurrentState(e *Engine, s attention.Shape) *RecurrentState {
	s.Chunk = e.window(s.D, s.Chunk)
	n := s.B * s.Hkv
	st := &RecurrentState{Engine: e, Shape: s, Heads: make([]*headtask.Scan, n), byHead: s.Chunk == 1 && e.canFuseSteps(&s)}
	// A step reads all arrays of a head and then all arrays of the next head: they lie
	// in memory in that order.
	streams, exist := make([]headtask.Scan, n), make([]bool, n*s.Chunk)
	var kinds []blocks
	for i := range st.Heads {
		u, h := e.StateUnit(&s), &streams[i]
		u.Noticed = &st.noticed
		u.Monomials, u.Chunk = e.newMonomials(e.Spec.Width(s.D)), s.Chunk
		h.Valid, exist = exist[:0:s.Chunk], exist[s.Chunk:]
		kind, at := 0, i
		if st.byHead {
			at = i%s.Hkv*s.B + i/s.Hkv
		}
		take := func(size int) []float {
			if i == 0 {
				kinds = append(kinds, makeBlocks(n, size))
				st.held += scratch.AllocatedBytes(int64(len(kinds[kind].data)) * scratch.ElementSize[float]())
			}
			kind++
			return kinds[kind-1].slice(at, size)
		}
		st.Heads[i] = h.Start(u, u.Monomials, s.Chunk, take)
		if s.Carry == attention.Compensated {
			h.Moments.Compensate(take)
		}
	}
	if n > 0 {
		st.moments = kinds[0]
	}
	st.bytes = states.Bytes(st)
	return st
}

// Absorb adds the keys and values of c. It returns an error if c does not fit the state.
func (s *RecurrentState) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

// Read sets out [B,H,N,Dv] for the queries of c. It returns the errors of CheckedRead.
func (s *RecurrentState) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

// Step absorbs and reads the tokens of c, out [B,H,N,Dv]. It returns the errors of CheckedStep.
func (s *RecurrentState) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

// StateShape returns the shape of the state.
func (s *RecurrentState) StateShape() *attention.Shape { return &s.Shape }

// MayBeNonFinite reports whether rows of the last call may hold NaN or infinities.
func (s *RecurrentState) MayBeNonFinite() bool { return s.noticed.Overflow.Swap(false) }

// Refuse returns an error if c has a decay that the mechanism does not support.
func (s *RecurrentState) Refuse(c *attention.Call) error {
	return s.Engine.refuseFading(c)
}

// Run absorbs m keys and sets the outputs of n queries, in every head.
func (s *RecurrentState) Run(out tensor.Heads, c *attention.Call, n, m int) {
	sh := &s.Shape
	_, work := s.Engine.CountOperations(n, m, 0, sh.D, sh.Dv, true, sh.Chunk)
	if max(n, m) == 1 {
		// Reading goes at the speed of memory, about half of the peak, and the
		// last token of a chunk brings all of it into the moments.
		work = 2 * s.Engine.countSumOperations(n, sh.D, sh.Dv)
		if m > 0 && len(s.Heads) > 0 && s.Heads[0].Count+1 == sh.Chunk {
			work += s.Engine.countSumOperations(sh.Chunk, sh.D, sh.Dv)
		}
	}
	work *= float64(sh.B * sh.H)
	ar := arena.Acquire()
	defer ar.Release()
	if s.Engine.Spec.BuiltinDecay != nil && m > 0 {
		c = s.Engine.withBuiltinDecay(ar, c)
	}
	if c.HasDecay() {
		s.StartAges()
	}
	s.HasClosedCount = n == m && c.KeyMask == nil && !c.HasDecay() && s.allHeadsClosed()
	var rows tokenRows
	if max(n, m) == 1 {
		rows = s.Engine.tokenRows(ar, sh, c, n, m)
		rows.byHead = s.HasClosedCount
	} else {
		for _, st := range s.Heads {
			st.Task.Workers = headtask.CountWorkers(len(s.Heads), work, work)
		}
	}
	runHeads(len(s.Heads), work, stateHeads{s, out, c, n, m, rows})
	s.TokenCount += int64(m)
}

// StartAges makes the state keep log-decays from now on.
func (s *RecurrentState) StartAges() {
	for _, st := range s.Heads {
		st.StartAges()
	}
}

// HasDecay reports whether the state has absorbed a decay.
func (s *RecurrentState) HasDecay() bool { return len(s.Heads) > 0 && s.Heads[0].Decays != nil }

// Do does the work of Run for key heads lo ≤ i < hi. For a single token, rows holds its
// prepared rows.
func (s *RecurrentState) Do(lo, hi int, out tensor.Heads, c *attention.Call, n, m int, rows tokenRows) {
	if rows.x != nil && s.HasClosedCount {
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

// head does the work of Do for key head i.
func (s *RecurrentState) head(i int, out tensor.Heads, c *attention.Call, n, m int, rows tokenRows) {
	ar := arena.Acquire()
	defer ar.Release()
	st := s.Heads[i]
	BindState(st.Task, ar, &s.Shape, i, out, c, n, m)
	defer UnbindState(st.Task)
	if rows.x == nil {
		st.Run()
		return
	}
	st.StepToken(rows.key(i*m), rows.query(i*len(st.Task.Q)*n), rows.ld)
}

// Clone returns a copy of the state.
func (s *RecurrentState) Clone() attention.State {
	return states.Copy(NewRecurrentState(s.Engine, s.Shape), s)
}

// Reset removes all tokens.
func (s *RecurrentState) Reset() {
	s.TokenCount, s.HasClosedCount = 0, false
	for _, st := range s.Heads {
		st.Moments.NonEmpty = false
		st.First, st.Decays = headtask.Unseen, nil
		st.ClearChunk()
	}
}

// Tokens returns the number of absorbed tokens.
func (s *RecurrentState) Tokens() int64 { return s.TokenCount }

// Bytes returns the memory held.
func (s *RecurrentState) Bytes() int64 {
	n := s.bytes
	for _, st := range s.Heads {
		n += st.Decays.Bytes()
	}
	return n
}

// HeapBytes returns the memory held, including tasks and the rounding of allocations. It leaves
// out the weights of features, which states share.
func (s *RecurrentState) HeapBytes() int64 {
	n := s.held + int64(unsafe.Sizeof(*s))
	for _, st := range s.Heads {
		n += st.Decays.Bytes() + int64(cap(st.Valid)) + int64(unsafe.Sizeof(st)+unsafe.Sizeof(*st)) + st.Task.Bytes() + st.Monomials.Bytes()
	}
	return n
}

// Owner returns the mechanism of the state.
func (s *RecurrentState) Owner() states.Owner { return s.Engine }

// AppendBinary appends a snapshot, whose size does not depend on the number of tokens absorbed.
// It returns an error if there are far more heads than bytes, which a restore would refuse.
func (s *RecurrentState) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

// Visit lists for each key head:
//
//	the number of tokens of the open chunk
//	two flags: a chunk has been closed, a closed chunk has an unmasked key
//	the moments, z and s [Dv] of every feature
//	if they are compensated, their rounding errors in the same layout
//	of the open chunk, the mask [C], the prepared keys [da, C], the values [C, Dv]
//	with decay, the log-decays of the open chunk
//
// Numbers that are not present yet are zero in a snapshot.
func (s *RecurrentState) Visit(p *states.Pass) {
	if p.SetsState() {
		s.TokenCount, s.HasClosedCount = p.Tokens, false
	}
	for i, st := range s.Heads {
		if i == 0 {
			p.Shared(st.Monomials.Weights)
		}
		if s.visitHead(p, i, st); p.HasFailed() {
			return
		}
	}
}

// visitHead does the work of Visit for key head i.
func (s *RecurrentState) visitHead(p *states.Pass, i int, st *headtask.Scan) {
	m, chunk := &st.Moments, s.Shape.Chunk
	n, closed, seen := p.Int(st.Count), p.Flag(m.NonEmpty), p.Flag(st.First < 0)
	if p.SetsState() {
		switch {
		case n < 0 || n >= chunk || int64(n) > p.Tokens:
			p.Fail("head %d has %d keys in its open chunk: chunks have %d, the state has %d tokens", i, n, chunk, p.Tokens)
			return
		case seen && !closed:
			p.Fail("head %d has a key in a closed chunk, and no closed chunk", i)
		}
		st.ClearChunk()
		m.NonEmpty, st.First, st.Decays = closed, headtask.Unseen, nil
		if seen {
			st.First = -1
		}
		if p.Decay {
			st.Decays = headtask.HeapAges(chunk)
		}
	}
	sums, none := st.Monomials.Count, 0
	if !closed {
		sums, none = 0, sums
	}
	for _, half := range m.Halves() {
		p.Interleaved(sums, none, states.Buffer{Data: half.Z, Count: 1, Stride: 1}, states.Buffer{Data: half.S, Count: s.Shape.Dv, Stride: m.Stride})
	}
	p.Flags(st.Valid, 0, n, chunk-n)
	p.Rows(st.X, st.ColumnStride, 1, 1+st.Task.PreparedWidth, n, chunk-n)
	p.Buffers(0, n, chunk-n, states.Buffer{Data: st.V, Count: s.Shape.Dv, Stride: m.Stride})
	if p.SetsState() {
		for _, exists := range st.Valid[:n] {
			st.AppendToken(exists)
		}
	}
	if st.Decays != nil {
		st.Decays.Visit(p, n, chunk)
	}
}

// NewStateFor returns a state of shape s without tokens. It returns an error if r has fewer
// bytes than a snapshot of it.
func (e *Engine) NewStateFor(s attention.Shape, r *snapshot.Reader) (*RecurrentState, error) {
	width, chunk := float64(e.Spec.Width(s.D)), float64(s.Chunk)
	moments := float64(e.Spec.CountFeatures(e.Spec.Width(s.D))) * float64(s.Dv+1)
	if s.Carry == attention.Compensated {
		moments *= 2
	}
	head := 8 + 2 + chunk + (moments+chunk*(width+float64(s.Dv)))*float64(scratch.ElementSize[float]())
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
	return NewRecurrentState(e, s), nil
}
