package engine

import (
	"slices"
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

// keyCache is the state of softmax and of similarities: it holds all prepared keys and all
// values. Queries use the direct form, in the same blocks as in a single call.
type keyCache struct {
	e         *Engine
	shape     attention.Shape
	tokens    int
	valid     [][]bool       // [B][tokens]
	hasMasked bool           // some are masked
	heads     []keyCacheHead // [B·Hkv]

	noticed headtask.RowNotices
}

// keyCacheHead is one key head, and the task that works on it.
type keyCacheHead struct {
	unit *headtask.Task
	rows headtask.KeyRows
	ages *headtask.LogDecays // nil: no decay
}

func newKeyCache(e *Engine, s attention.Shape) *keyCache {
	s.Chunk, s.Carry = 0, attention.Rounded // there are no sums
	c := &keyCache{e: e, shape: s, valid: make([][]bool, s.B), heads: make([]keyCacheHead, s.B*s.Hkv)}
	for i := range c.heads {
		h := &c.heads[i]
		h.unit = e.StateUnit(&s)
		h.unit.Noticed = &c.noticed
		h.rows.Panel, h.rows.Ldb, h.rows.Ldv = headtask.CachePanel, headtask.CachePanel, kernel.Pad(s.Dv)
	}
	return c
}

func (s *keyCache) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

func (s *keyCache) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

func (s *keyCache) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

func (s *keyCache) StateShape() *attention.Shape { return &s.shape }

// MayBeNonFinite reports whether rows of the last call may hold NaN or infinities.
func (s *keyCache) MayBeNonFinite() bool { return s.noticed.Overflow.Swap(false) }

func (s *keyCache) Refuse(c *attention.Call) error { return s.e.refuseFading(c) }

// Run absorbs m tokens and sets the outputs of n queries, in every head. If there are both,
// query i sees no token after token i.
func (s *keyCache) Run(out tensor.Heads, c *attention.Call, n, m int) {
	for b := range s.valid {
		s.valid[b] = scratch.Grow(s.valid[b], m)
		for j := range m {
			exists := c.KeyMask == nil || c.KeyMask[b*m+j]
			s.valid[b][s.tokens+j] = exists
			s.hasMasked = s.hasMasked || !exists
		}
	}
	if c.HasDecay() {
		s.startAges()
	}
	ar := arena.Acquire()
	defer ar.Release()
	var rows tokenRows
	if max(n, m) == 1 {
		rows = s.e.tokenRows(ar, &s.shape, c, n, m)
	}
	work, _ := s.e.CountOperations(n, s.tokens+m, s.tokens+m-n, s.shape.D, s.shape.Dv, false, 1)
	work *= float64(s.shape.B * s.shape.H)
	for i := 0; i < len(s.heads) && rows.x == nil; i++ {
		s.heads[i].unit.Workers = headtask.CountWorkers(len(s.heads), work, work)
	}
	runHeads(len(s.heads), work, stateHeads{s, out, c, n, m, rows})
	s.tokens += m
}

// startAges makes the state keep log-decays from now on.
func (s *keyCache) startAges() {
	for i := range s.heads {
		if h := &s.heads[i]; h.ages == nil {
			h.ages = headtask.UndecayedAges(s.tokens, s.valid[i/s.shape.Hkv][:s.tokens])
		}
	}
}

// HasDecay reports whether the state has absorbed a decay.
func (s *keyCache) HasDecay() bool { return len(s.heads) > 0 && s.heads[0].ages != nil }

// Do does the work of Run for key heads lo ≤ i < hi. For a single token, rows holds its
// prepared rows.
func (s *keyCache) Do(lo, hi int, out tensor.Heads, c *attention.Call, n, m int, rows tokenRows) {
	for i := lo; i < hi; i++ {
		s.head(i, out, c, n, m, rows)
	}
}

// head does the work of Do for key head i.
func (s *keyCache) head(i int, out tensor.Heads, c *attention.Call, n, m int, rows tokenRows) {
	ar := arena.Acquire()
	defer ar.Release()
	h := &s.heads[i]
	u := h.unit
	BindState(u, ar, &s.shape, i, out, c, n, m)
	defer UnbindState(u)
	if m > 0 {
		h.rows.Grow(u.PreparedWidth, s.tokens, s.tokens+m)
		u.CopyValues(h.rows.V[s.tokens*h.rows.Ldv:], h.rows.Ldv, 0, m)
		if rows.x == nil {
			h.rows.Put(u, s.tokens, 0, m)
		} else {
			h.rows.PutToken(u.PreparedWidth, s.tokens, rows.key(i))
		}
	}
	for j := 0; j < m && h.ages != nil; j++ {
		h.ages.Add(u.LogDecay(j), u.HasKey(j))
	}
	if n == 0 {
		return
	}
	// Queries are prepared by their place in the call, and see all keys so far.
	all := *u
	all.M, all.Mask, all.Decays = s.tokens+m, nil, h.ages
	if s.hasMasked {
		all.Mask = s.valid[i/s.shape.Hkv]
	}
	all.Causal, all.Offset = m > 0, s.tokens
	if rows.x != nil {
		// Rows of one token are columns that lie one apart.
		all.Attend(&h.rows, rows.query(i*len(u.Q)), 1, 0, 1)
		return
	}
	long := all // a copy that may leave this goroutine, where a token's stays
	u.AttendAs(&long, &h.rows)
}

func (s *keyCache) Clone() attention.State { return states.Copy(newKeyCache(s.e, s.shape), s) }

func (s *keyCache) Reset() {
	s.tokens, s.hasMasked = 0, false
	for b := range s.valid {
		s.valid[b] = s.valid[b][:0]
	}
	for i := range s.heads {
		rows := &s.heads[i].rows
		rows.Bt, rows.V = rows.Bt[:0], rows.V[:0]
		s.heads[i].ages = nil
	}
}

func (s *keyCache) Tokens() int64 { return int64(s.tokens) }

func (s *keyCache) Bytes() int64 { return states.Bytes(s) }

// HeapBytes returns the memory held, tasks included.
func (s *keyCache) HeapBytes() int64 {
	n := s.Bytes() + int64(unsafe.Sizeof(*s))
	for i := range s.heads {
		n += int64(unsafe.Sizeof(s.heads[i])) + s.heads[i].unit.Bytes()
	}
	return n
}

func (s *keyCache) Owner() states.Owner { return s.e }

func (s *keyCache) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

// Visit lists the mask of each batch row, and then for each head the number of keys, the
// prepared keys [da, tokens] block by block, the values [tokens, Dv] and, with decay, the
// log-decays.
func (s *keyCache) Visit(p *states.Pass) {
	if p.SetsState() {
		s.tokens = int(p.Tokens)
	}
	for b := range s.valid {
		if p.SetsState() {
			s.valid[b] = make([]bool, s.tokens)
		}
		p.Flags(s.valid[b], 0, s.tokens, 0)
		if p.SetsState() && slices.Contains(s.valid[b], false) {
			s.hasMasked = true
		}
	}
	for i := range s.heads {
		h := &s.heads[i]
		if n := p.Int(s.tokens); n != s.tokens {
			p.Fail("head %d has %d keys, the state has %d tokens", i, n, s.tokens)
		}
		if p.InMemory() {
			states.Growing(p, &h.rows.Bt)
			states.Growing(p, &h.rows.V)
		} else {
			s.visitRows(p, &h.rows)
		}
		if p.SetsState() && p.Decay {
			h.ages = headtask.HeapAges(s.tokens)
		}
		if h.ages != nil {
			h.ages.Visit(p, s.tokens, s.tokens)
		}
	}
}

// visitRows lists the keys and values of a head for a snapshot.
func (s *keyCache) visitRows(p *states.Pass, rows *headtask.KeyRows) {
	da := s.e.Spec.Width(s.shape.D)
	if p.SetsState() {
		rows.Grow(da, 0, s.tokens)
		clear(rows.V)
	}
	rows.Each(s.tokens, da, p.Elements)
	p.Buffers(0, s.tokens, 0, states.Buffer{Data: rows.V, Count: s.shape.Dv, Stride: rows.Ldv})
}

// newCacheFor returns a state of shape s without tokens. It returns an error if r has fewer bytes
// than a snapshot of the given number of tokens.
func (e *Engine) newCacheFor(s attention.Shape, tokens int64, r *snapshot.Reader) (*keyCache, error) {
	head := 8 + float64(tokens)*float64(e.Spec.Width(s.D)+s.Dv)*float64(scratch.ElementSize[float]())
	if r.Decay {
		head += headtask.AgesBytes(float64(tokens))
	}
	if err := r.Need(float64(s.B) * (float64(tokens) + float64(s.Hkv)*head)); err != nil {
		return nil, err
	}
	return newKeyCache(e, s), nil
}
