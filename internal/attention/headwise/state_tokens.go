package headwise

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// BoundedReach is a causal Function whose queries see a bounded number of keys. Its states keep
// that many.
type BoundedReach interface {
	// Reach returns the number of keys that a query sees, its own included, or 0 if there is no
	// bound. Shifting all positions by a multiple of period changes no result.
	Reach() (keys, period int)
}

// PastQueryReader is a causal Function whose outputs depend on earlier queries. Its states keep
// these queries and pass them in Head.PastQueries.
type PastQueryReader interface{ NeedsPastQueries() }

// PastQueryCoder is a PastQueryReader that needs some integers for each earlier query, such as
// its hashes. Its states compute these codes once for each token and pass them in
// Head.PastCodes.
type PastQueryCoder interface {
	PastQueryReader
	// CodeCount returns the number of codes of a query.
	CodeCount() int
	// Code sets codes [n, CodeCount] to the codes of the queries h.Q [n,D].
	Code(h *Head, codes []int32)
}

// KeyIndexer is a causal Function that can keep an index over the keys of each key head. Its
// states of all keys use these indexes.
type KeyIndexer interface{ NewKeyIndex() KeyIndex }

// KeyIndex computes the same outputs as the Function, in less time, for queries at the last key
// of a sequence.
type KeyIndex interface {
	// Forward sets h.Out. All queries of h have the position of its last key. The keys of h are
	// the keys of the previous call, possibly followed by new ones.
	Forward(h *Head)
	// Clone returns an independent index of the same keys.
	Clone() KeyIndex
	// Bytes returns the memory of the index in bytes.
	Bytes() int64
}

// Kinds of states in snapshots: of all tokens, as for the cache of other mechanisms, and
// of the last ones.
const (
	cacheKind  = "keys and values"
	windowKind = "window of keys and values"
)

// tokenState is the state of a causal Function that does not provide its own. It holds rotated
// keys, and values: for all tokens, or for a BoundedReach the last keep. The keys that a query
// sees start at a multiple of the period, so that its bits depend only on its position.
type tokenState struct {
	w            *driver
	shape        attention.Shape
	tokens       int
	keys, period int
	keep         int // tokens that every later query needs at most; 0: all

	// Rows of tokens from start on: all of them, or at least keep and at most 2·keep.
	start int
	valid [][]bool        // [B][room] unmasked tokens
	k, v  []states.Buffer // [B·Hkv] of D and Dv numbers a token; zeros where a token is masked
	q     []states.Buffer // [B·H] of D numbers, of a PastQueryReader that keeps all, rotated; nil for others

	indexes []KeyIndex // [B·Hkv] of a KeyIndexer; nil for others

	coder PastQueryCoder // nil: the Function is none
	codes [][]int32      // [B·H][tokens, CodeCount] of queries that the state keeps
}

// code computes the codes of all queries that do not have them yet.
func (s *tokenState) code() {
	if s.coder == nil {
		return
	}
	count, d := s.coder.CodeCount(), s.shape.D
	ar := arena.Acquire()
	defer ar.Release()
	h := s.w.takeHead()
	defer s.w.putHead(h)
	for i := range s.codes {
		mark, from := ar.Mark(), len(s.codes[i])/count
		n := s.tokens - from
		s.codes[i] = scratch.Grow(s.codes[i], n*count)
		*h = Head{Q: tensor.Mat{Data: s.q[i].Data[from*d:], Rows: n, Cols: d, Stride: d}, Scratch: ar, Table: kernel.Active[float]()}
		if n > 0 {
			s.coder.Code(h, s.codes[i][from*count:])
		}
		ar.Reset(mark)
	}
}

// newIndexes gives the state empty indexes if its Function is a KeyIndexer.
func (s *tokenState) newIndexes() {
	x, is := s.w.Function.(KeyIndexer)
	if !is {
		return
	}
	s.indexes = make([]KeyIndex, s.shape.B*s.shape.Hkv)
	for i := range s.indexes {
		s.indexes[i] = x.NewKeyIndex()
	}
}

// reach returns Reach of the Function, or 0 if its states grow.
func (w *driver) reach() (keys, period int) {
	if x, ok := w.Function.(BoundedReach); ok {
		return x.Reach()
	}
	return 0, 0
}

// keptTokens returns the number of tokens that a state of w keeps, 0 for all.
func (w *driver) keptTokens() int {
	keys, period := w.reach()
	if keys <= 0 {
		return 0
	}
	return keys + period - 1
}

// stateBytes returns the memory of a state of shape s, 0 if it grows with the tokens.
func (w *driver) stateBytes(s attention.Shape) float64 {
	row := float64(s.D) + float64(s.Dv)
	return 2 * float64(w.keptTokens()) * float64(s.B) * (1 + float64(s.Hkv)*row*float64(scratch.ElementSize[float]()))
}

// newTokenState returns a state without tokens.
func newTokenState(w *driver, s attention.Shape) *tokenState {
	st := &tokenState{w: w, shape: attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}, keep: w.keptTokens()}
	st.keys, st.period = w.reach()
	st.valid = make([][]bool, s.B)
	st.k, st.v = states.MakeBuffers(s.B*s.Hkv, s.D), states.MakeBuffers(s.B*s.Hkv, s.Dv)
	if _, is := w.Function.(PastQueryReader); is && st.keep == 0 {
		st.q = states.MakeBuffers(s.B*s.H, s.D)
		if st.coder, is = w.Function.(PastQueryCoder); is {
			st.codes = make([][]int32, s.B*s.H)
		}
	}
	st.resize(2 * st.keep)
	st.newIndexes()
	return st
}

// buffers calls f with each buffer of the state, in the order of a snapshot.
func (s *tokenState) buffers(f func(b *states.Buffer)) {
	for i := range s.k {
		f(&s.k[i])
		f(&s.v[i])
	}
	for i := range s.q {
		f(&s.q[i])
	}
}

// resize makes room for n tokens.
func (s *tokenState) resize(n int) {
	for b := range s.valid {
		s.valid[b] = scratch.Resize(s.valid[b], n)
	}
	s.buffers(func(b *states.Buffer) { b.Resize(n) })
}

// makeRoom makes room for n more tokens, at most keep if that bounds them, and returns
// the place of the first.
func (s *tokenState) makeRoom(n int) int {
	have := s.tokens - s.start
	if s.keep == 0 {
		s.resize(have + n)
		return have
	}
	if have+n <= 2*s.keep {
		return have
	}
	drop := have - min(have, s.keep)
	for b := range s.valid {
		copy(s.valid[b], s.valid[b][drop:have])
	}
	s.buffers(func(b *states.Buffer) { b.Copy(0, b, drop, have-drop) })
	s.start += drop
	return have - drop
}

func (s *tokenState) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

func (s *tokenState) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

func (s *tokenState) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

func (s *tokenState) StateShape() *attention.Shape { return &s.shape }

func (s *tokenState) Refuse(c *attention.Call) error { return s.w.refuseCall(c) }

// Run absorbs the m keys of c and sets out for its n queries.
func (s *tokenState) Run(out tensor.Heads, c *attention.Call, n, m int) {
	if m == 0 {
		s.setOutputs(tokenOutputs{s: s, out: out, c: c, end: n, position: s.tokens})
		return
	}
	size := m
	if s.keep > 0 {
		size = s.keep
	}
	for j := 0; j < m; j += size {
		past, end := s.tokens, min(j+size, m)
		s.appendTokens(c, j, end, n > 0)
		if n > 0 {
			s.setOutputs(tokenOutputs{s: s, out: out, c: c, start: j, end: end, position: past + 1, step: 1})
		}
	}
}

// appendTokens appends tokens j0 ≤ j < j1 of c. Queries of tokens without one are 0.
func (s *tokenState) appendTokens(c *attention.Call, j0, j1 int, hasQueries bool) {
	ar := arena.Acquire()
	defer ar.Release()
	n, d, dv := j1-j0, s.shape.D, s.shape.Dv
	at := s.makeRoom(n)
	for b := range s.valid {
		for j := range n {
			s.valid[b][at+j] = c.KeyMask == nil || c.KeyMask[b*c.K.N+j0+j]
		}
	}
	rope := c.Rope
	if rope != nil && j0 > 0 {
		rope = rope.Slice(j0)
	}
	for i := range s.k {
		mark := ar.Mark()
		b, kh := i/s.shape.Hkv, i%s.shape.Hkv
		mask := s.valid[b][at:][:n]
		k := RotateAndMask(ar, c.K.Head(b, kh).Slice(j0, j1), mask, rope, 0)
		v := RotateAndMask(ar, c.V.Head(b, kh).Slice(j0, j1), mask, nil, 0)
		copy(s.k[i].Data[at*d:], k.Data[:n*d])
		copy(s.v[i].Data[at*dv:], v.Data[:n*dv])
		ar.Reset(mark)
	}
	for i := range s.q {
		rows := s.q[i].Data[at*d:][:n*d]
		if !hasQueries {
			clear(rows)
			continue
		}
		mark := ar.Mark()
		q := RotateAndMask(ar, c.Q.Head(i/s.shape.H, i%s.shape.H).Slice(j0, j1), nil, rope, 0)
		copy(rows, q.Data)
		ar.Reset(mark)
	}
	s.tokens += n
	s.code()
}

// tokenOutputs computes the outputs of queries start ≤ i < end of a call. Query i has the
// position of token position-1+(i-start)·step.
type tokenOutputs struct {
	s   *tokenState
	out tensor.Heads
	c   *attention.Call

	start, end, position, step int
}

// setOutputs computes outputs.
func (s *tokenState) setOutputs(f tokenOutputs) {
	one := s.shape
	one.N, one.M, one.Causal = 1, s.tokens, true
	if s.keep > 0 {
		one.M = s.keys
	}
	heads := s.shape.B * s.shape.H
	units := heads
	if s.indexes != nil {
		units = len(s.indexes)
	}
	par.Run(units, 1, float64(heads*(f.end-f.start))*s.w.Cost(one).FLOPs, f)
}

// RunRange sets the outputs of query heads u0 ≤ u < u1 of all sequences, of key heads if they
// have indexes.
func (f *tokenOutputs) RunRange(u0, u1 int) {
	for u := u0; u < u1; u++ {
		if f.s.indexes != nil {
			f.setByIndex(u)
		} else {
			f.setHead(u)
		}
	}
}

// setByIndex sets the outputs of all query heads of a key head.
func (f *tokenOutputs) setByIndex(kv int) {
	ar := arena.Acquire()
	defer ar.Release()
	s, c := f.s, f.c
	d, dv, group := s.shape.D, s.shape.Dv, s.shape.H/s.shape.Hkv
	b, keyHead := kv/s.shape.Hkv, kv%s.shape.Hkv
	h := s.w.takeHead()
	defer s.w.putHead(h)
	for i := f.start; i < f.end; i++ {
		mark := ar.Mark()
		m := f.position + (i-f.start)*f.step
		valid := s.valid[b][:m]
		q, out := scratch.TakeMat(ar, group, d), scratch.TakeMat(ar, group, dv)
		for g := range group {
			copy(q.Row(g), c.Q.Head(b, keyHead*group+g).Row(i))
			if c.Rope != nil {
				c.Rope.RotateRows(q.Slice(g, g+1), i, false)
			}
		}
		if slices.Contains(valid, true) {
			*h = Head{
				Q: q, Out: out,
				K: tensor.Mat{Data: s.k[kv].Data, Rows: m, Cols: d, Stride: d},
				V: tensor.Mat{Data: s.v[kv].Data, Rows: m, Cols: dv, Stride: dv},

				Causal: true, Offset: m - 1, Shift: m - 1, Head: keyHead * group, KeyHead: keyHead, KeyHeads: s.shape.Hkv, Scratch: ar, Table: kernel.Active[float](),
			}
			if slices.Contains(valid, false) {
				h.Mask = valid
			}
			s.indexes[kv].Forward(h)
		} else {
			scratch.ClearRows(out, 0, group)
		}
		for g := range group {
			copy(f.out.Head(b, keyHead*group+g).Row(i), out.Row(g))
		}
		ar.Reset(mark)
	}
}

// setHead sets the outputs of a query head.
func (f *tokenOutputs) setHead(u int) {
	ar := arena.Acquire()
	defer ar.Release()
	s, c := f.s, f.c
	d, dv := s.shape.D, s.shape.Dv
	b, head := u/s.shape.H, u%s.shape.H
	keyHead := head / (s.shape.H / s.shape.Hkv)
	kv := b*s.shape.Hkv + keyHead
	h := s.w.takeHead()
	defer s.w.putHead(h)
	for i := f.start; i < f.end; i++ {
		mark := ar.Mark()
		row, end, first := f.out.Head(b, head).Slice(i, i+1), f.position+(i-f.start)*f.step, 0
		if s.keep > 0 {
			first = max(end-s.keys, 0) / s.period * s.period
		}
		at, m := first-s.start, end-first
		valid := s.valid[b][at:][:m]
		if !slices.Contains(valid, true) {
			clear(row.Row(0))
			continue
		}
		*h = Head{
			Q: RotateAndMask(ar, c.Q.Head(b, head).Slice(i, i+1), nil, c.Rope, i),
			K: tensor.Mat{Data: s.k[kv].Data[at*d:], Rows: m, Cols: d, Stride: d},
			V: tensor.Mat{Data: s.v[kv].Data[at*dv:], Rows: m, Cols: dv, Stride: dv},

			Causal: true, Offset: m - 1, Shift: m - 1, Head: head, KeyHead: keyHead, KeyHeads: s.shape.Hkv, Scratch: ar, Table: kernel.Active[float](),
		}
		if slices.Contains(valid, false) {
			h.Mask = valid
		}
		if s.q != nil {
			h.PastQueries = tensor.Mat{Data: s.q[u].Data, Rows: m - 1, Cols: d, Stride: d}
		}
		if s.coder != nil {
			h.PastCodes = s.codes[u][:(m-1)*s.coder.CodeCount()]
		}
		h.Out = scratch.ForOutput(ar, row)
		s.w.Function.Forward(h)
		scratch.CopyMat(row, h.Out)
		ar.Reset(mark)
	}
}

// Merge appends the tokens of next to s. The bits are the same as for one stream.
func (s *tokenState) Merge(next attention.State) error {
	return states.Merge(s, next, func(n *tokenState) error {
		last, from := n.keptTokens()
		at := s.makeRoom(last)
		for b := range s.valid {
			copy(s.valid[b][at:], n.valid[b][from:][:last])
		}
		add := func(to, rows []states.Buffer) {
			for i := range to {
				to[i].Copy(at, &rows[i], from, last)
			}
		}
		add(s.k, n.k)
		add(s.v, n.v)
		add(s.q, n.q)
		// If next has dropped tokens, no query will see earlier ones.
		s.start += n.tokens - last
		s.tokens += n.tokens
		s.code()
		return nil
	})
}

// keptTokens returns the number of tokens that later queries may see, and the place of
// the first.
func (s *tokenState) keptTokens() (n, at int) {
	n = s.tokens
	if s.keep > 0 {
		n = min(n, s.keep)
	}
	return n, s.tokens - s.start - n
}

func (s *tokenState) Clone() attention.State {
	c := states.Copy(newTokenState(s.w, s.shape), s)
	for i, x := range s.indexes {
		c.indexes[i] = x.Clone()
	}
	return c
}

func (s *tokenState) Reset() {
	s.tokens, s.start = 0, 0
	for i := range s.codes {
		s.codes[i] = s.codes[i][:0]
	}
	s.newIndexes()
}

func (s *tokenState) Tokens() int64 { return int64(s.tokens) }

func (s *tokenState) Bytes() int64 {
	if s.keep > 0 {
		return int64(s.w.stateBytes(s.shape))
	}
	n := states.Bytes(s)
	for _, x := range s.indexes {
		n += x.Bytes()
	}
	return n
}

func (s *tokenState) HasDecay() bool { return false }

func (s *tokenState) Owner() states.Owner { return s.w }

func (s *tokenState) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

// Visit lists the mask of each batch row, the keys and values of each key head, and then the
// queries, each for all tokens or for the last keep tokens. If there were fewer than keep
// tokens, zeros fill up the rest of a snapshot. The codes of queries are computed again.
func (s *tokenState) Visit(p *states.Pass) {
	if p.SetsState() {
		s.tokens = int(p.Tokens)
		if s.keep == 0 {
			s.resize(s.tokens)
		} else {
			s.start = max(s.tokens-s.keep, 0)
		}
	}
	n, at := s.keptTokens()
	missing := max(s.keep-n, 0)
	for _, valid := range s.valid {
		p.Flags(valid, at, n, missing)
	}
	s.buffers(func(b *states.Buffer) { p.Buffers(at, n, missing, *b) })
	for i := range s.codes {
		states.Growing(p, &s.codes[i])
	}
	if p.SetsState() && !p.HasFailed() {
		s.code()
	}
}

// RestoreState returns the state in a snapshot of State.AppendBinary.
func (w *driver) RestoreState(data []byte) (attention.State, error) {
	if err := w.refuseFuture("snapshot"); err != nil {
		return nil, err
	}
	if own, ok := w.Function.(StateProvider); ok {
		return own.RestoreState(data)
	}
	return states.Restore(data, w, func(s attention.Shape, tokens int64, r *snapshot.Reader) (states.Visited, error) {
		if err := w.checkShape(&s); err != nil {
			return nil, err
		}
		rows := float64(s.Hkv) * float64(s.D+s.Dv)
		if keep := w.keptTokens(); keep > 0 {
			tokens = int64(keep)
		} else if _, is := w.Function.(PastQueryReader); is {
			rows += float64(s.H) * float64(s.D)
		}
		if err := r.Need(float64(s.B) * float64(tokens) * (1 + rows*float64(scratch.ElementSize[float]()))); err != nil {
			return nil, err
		}
		return newTokenState(w, s), nil
	})
}

// Identity returns the identity of the mechanism's states.
func (w *driver) Identity() states.Identity {
	kind := cacheKind
	if w.keptTokens() > 0 {
		kind = windowKind
	}
	return states.Identity{Kind: kind, Name: w.name(), Setting: w.Setting()}
}

// ParameterSum returns the checksum of the parameters and constants.
func (w *driver) ParameterSum() (sum snapshot.ParameterSum) {
	for _, x := range slices.Concat(w.Params().All(), w.Constants().All()) {
		sum = snapshot.AddParameters(sum, x.Data)
	}
	return sum
}
