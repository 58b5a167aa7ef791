package zoo

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/snapshot"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// scoresState holds the sums of keys and of queries. Absorb adds keys only, Step adds keys
// and queries. Queries before the first unmasked key see no key and are summed separately:
// Merge adds them if it puts keys before them. Read takes its queries as consecutive
// positions and leaves the state unchanged.
type scoresState struct {
	x      *Scores
	shape  attention.Shape
	tokens int64
	// Numbers of each batch row: unmasked keys, queries from the first key on, and queries before it.
	keys, queries, keylessQueries []int64
	k, q, keylessQ                [][]float64 // [B·Hkv][D], [B·H][D], [B·H][D]
}

// NewState returns an empty state for calls of shape s. The error is nil.
func (x *Scores) NewState(s attention.Shape) (attention.State, error) {
	return x.newState(s), nil
}

func (x *Scores) newState(s attention.Shape) *scoresState {
	s = attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, D: s.D, Dv: s.Dv}
	st := &scoresState{x: x, shape: s, keys: make([]int64, s.B), queries: make([]int64, s.B), keylessQueries: make([]int64, s.B),
		k: make([][]float64, s.B*s.Hkv), q: make([][]float64, s.B*s.H), keylessQ: make([][]float64, s.B*s.H)}
	for _, sums := range st.sums() {
		for i := range sums {
			sums[i] = make([]float64, s.D)
		}
	}
	return st
}

// counts returns the counts of tokens, each [B].
func (s *scoresState) counts() [3][]int64 {
	return [...][]int64{s.keys, s.queries, s.keylessQueries}
}

// sums returns the sums of keys and of queries.
func (s *scoresState) sums() [3][][]float64 { return [...][][]float64{s.k, s.q, s.keylessQ} }

func (s *scoresState) Absorb(c *attention.Call) error { return attention.CheckedAbsorb(c, s) }

func (s *scoresState) Read(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedRead(out, c, s)
}

func (s *scoresState) Step(out tensor.Heads, c *attention.Call) error {
	return attention.CheckedStep(out, c, s)
}

func (s *scoresState) StateShape() *attention.Shape { return &s.shape }

func (s *scoresState) Refuse(c *attention.Call) error {
	return headwise.RefuseHeadwise(s.x.Name, c)
}

// Run processes the tokens of c in order. For each token it adds the key to the sums if keys
// is above 0, then answers the query if queries is above 0.
func (s *scoresState) Run(out tensor.Heads, c *attention.Call, queries, keys int) {
	n, absorbs, reads := max(queries, keys), keys > 0, queries > 0
	group := s.shape.H / s.shape.Hkv
	work := 4 * float64(s.shape.B*s.shape.H*n*s.x.Rank*(s.shape.D+s.shape.Dv))
	par.RunEach(s.shape.B*s.shape.Hkv, work, func(i int) {
		ar := arena.Acquire()
		defer ar.Release()
		b, kh := i/s.shape.Hkv, i%s.shape.Hkv
		var mask []bool
		if absorbs && c.KeyMask != nil {
			mask = c.KeyMask[b*n:][:n]
		}
		var k tensor.Mat
		if absorbs {
			k = headwise.RotateAndMask(ar, c.K.Head(b, kh), mask, c.Rope, 0)
		}
		q, sums := make([]tensor.Mat, group), make([][]float64, group)
		for g := range q {
			if !reads {
				break
			}
			head := kh*group + g
			q[g], sums[g] = headwise.RotateAndMask(ar, c.Q.Head(b, head), nil, c.Rope, 0), s.q[b*s.shape.H+head]
			if !absorbs {
				sums[g] = append(arena.Take[float64](ar, s.shape.D)[:0], sums[g]...)
			}
		}
		keys, queries := s.keys[b], s.queries[b]
		for j := range n {
			if absorbs && (mask == nil || mask[j]) {
				addTo(s.k[i], k.Row(j))
				keys++
			}
			if !reads {
				continue
			}
			if keys > 0 {
				queries++
			}
			for g := range q {
				head := kh*group + g
				if absorbs && keys == 0 {
					addTo(s.keylessQ[b*s.shape.H+head], q[g].Row(j))
				}
				s.answer(ar, head, out.Head(b, head).Row(j), q[g].Row(j), sums[g], s.k[i], queries, keys)
			}
		}
	})
	if !absorbs {
		return
	}
	for b := range s.keys {
		for j := range n {
			if c.KeyMask == nil || c.KeyMask[b*n+j] {
				s.keys[b]++
			}
			switch {
			case reads && s.keys[b] > 0:
				s.queries[b]++
			case reads:
				s.keylessQueries[b]++
			}
		}
	}
	s.tokens += int64(n)
}

// answer sets out [Dv] to the output of query q of a head. It adds q to sumQ, which then holds
// the given number of queries; sumK is the sum of the given number of keys.
func (s *scoresState) answer(ar *arena.Arena, head int, out, q []float, sumQ, sumK []float64, queries, keys int64) {
	if keys == 0 {
		clear(out)
		return
	}
	mark := ar.Mark()
	defer ar.Reset(mark)
	x, t := s.x, kernel.Active[float]()
	row, both := arena.Take[float](ar, len(q)), arena.TakeZeros[float](ar, 2*x.Rank)
	project := func(to []float, w tensor.Mat) {
		toLength1(row)
		for c, v := range row {
			t.Axpy(to, v, w.Row(c))
		}
	}
	meanOf(row, q, sumQ, int(queries))
	project(both[:x.Rank], x.ofHead(x.We, x.We.Data, head))
	setMean(row, sumK, int(keys))
	project(both[x.Rank:], x.ofHead(x.Wr, x.Wr.Data, head))
	for c := range out {
		out[c] = t.Dot(both, x.matrix(x.Wc.Data, len(out)).Row(c)) + x.Bias.Data[c]
	}
}

const scoresKind = "sums of queries and keys"

// Identity returns the identity of the mechanism's states.
func (x *Scores) Identity() states.Identity {
	return states.Identity{Kind: scoresKind, Name: x.Name, Setting: x.ScoresSpec.Setting}
}

// ParameterSum returns the checksum of the parameters.
func (x *Scores) ParameterSum() (sum snapshot.ParameterSum) {
	for _, p := range x.params.All() {
		sum = snapshot.AddParameters(sum, p.Data)
	}
	return sum
}

func (s *scoresState) Owner() states.Owner { return s.x }

func (s *scoresState) HasDecay() bool { return false }

// Visit lists for each batch row the numbers of keys, of queries from the first key on and of
// queries before it, then the sums of these three, in this order.
func (s *scoresState) Visit(p *states.Pass) {
	if p.SetsState() {
		s.tokens = p.Tokens
	}
	for b := range s.keys {
		for _, counts := range s.counts() {
			p.TokenCounts(counts[b:][:1:1])
		}
	}
	for _, sums := range s.sums() {
		for _, x := range sums {
			p.Wide(x, 0, len(x), 0)
		}
	}
}

// Merge appends the tokens of next: it adds the sums. In batch rows where s has keys, the
// queries of next before its own first key count too, since they now follow a key.
func (s *scoresState) Merge(next attention.State) error {
	return states.Merge(s, next, func(n *scoresState) error {
		for i := range s.k {
			addTo(s.k[i], n.k[i])
		}
		for b := range s.keys {
			queries, q := s.keylessQueries, s.keylessQ
			if s.keys[b] > 0 {
				queries, q = s.queries, s.q
			}
			queries[b] += n.keylessQueries[b]
			for i := b * s.shape.H; i < (b+1)*s.shape.H; i++ {
				addTo(q[i], n.keylessQ[i])
				addTo(s.q[i], n.q[i])
			}
			s.keys[b] += n.keys[b]
			s.queries[b] += n.queries[b]
		}
		s.tokens += n.tokens
		return nil
	})
}

func (s *scoresState) Clone() attention.State { return states.Copy(s.x.newState(s.shape), s) }

func (s *scoresState) Reset() {
	s.tokens = 0
	states.Clear(s)
}

func (s *scoresState) Tokens() int64 { return s.tokens }

func (s *scoresState) Bytes() int64 { return states.Bytes(s) }

func (s *scoresState) AppendBinary(b []byte) ([]byte, error) { return states.AppendBinary(b, s) }

// RestoreState returns the state of the snapshot data. It returns an error if data is
// damaged or is a state of another mechanism, setting or parameter.
func (x *Scores) RestoreState(data []byte) (attention.State, error) {
	return states.Restore(data, x, func(sh attention.Shape, _ int64, r *snapshot.Reader) (states.Visited, error) {
		c := &attention.Call{Causal: true}
		c.Q.H, c.Q.D, c.V.D = sh.H, sh.D, sh.Dv
		if err := x.Check(c); err != nil {
			return nil, err
		}
		if err := r.Need(float64(sh.B) * (24 + 8*float64(sh.D)*float64(sh.Hkv+2*sh.H))); err != nil {
			return nil, err
		}
		return x.newState(sh), nil
	})
}
