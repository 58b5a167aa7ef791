package zoo

import (
	"fmt"
	"math"
	"sync"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// lshAttention is softmax over the keys of tokens with near hashes, which sorting
// brings together (Kitaev et al. 2020, eq. 3-5). Key j is query j, scaled to length 1; in a
// causal call it is the query at the position of key j. The sorting has no gradient.
//
// The paper sorts by bucket and position and cuts the sorted sequence into chunks, across buckets.
// A later token of an earlier bucket then moves the borders of all chunks after it. Causal calls
// cut each bucket by itself: with r unmasked keys of its bucket before it, a token lies in chunk
// ⌊r/size⌋ of the bucket. It sees the keys of this chunk and of the chunk before, up to its own
// position; itself only if it sees no other, or always with self=seen. Nothing in this depends on a
// later token. All buckets are used, since their number must not depend on the length.
type lshAttention struct {
	setting                            string
	bucket, rounds, buckets            int
	softmaxPerRound                    bool // each round has its own softmax
	countOnce, selfIfAlone, keepMasked bool
	scale                              float64 // 0: 1/√D
	rotations                          *param.Param
	constants                          param.Set
	passes                             sync.Pool // of *lshPass
}

func NewReformer(r *entry.Reader) (headwise.Function, error) {
	x := new(lshAttention)
	var err error
	if x.bucket, err = r.Integer("bucket", 1, 1<<16); err != nil {
		return nil, err
	}
	if x.rounds, err = r.Integer("rounds", 1, 32); err != nil {
		return nil, err
	}
	if x.buckets, err = r.Integer("buckets", 2, 4096); err != nil || x.buckets%2 != 0 {
		return nil, r.Refuse("buckets", "an even number from 2 to 4096")
	}
	form, err := r.Choice("form", "paper", "fast-transformers")
	if err != nil {
		return nil, err
	}
	repeats, err := r.Choice("repeats", "once", "counted")
	if err != nil {
		return nil, err
	}
	self, err := r.Choice("self", "alone", "seen")
	if err != nil {
		return nil, err
	}
	masks, err := r.Choice("masks", "absent", "kept")
	if err != nil {
		return nil, err
	}
	if x.scale, err = r.SoftmaxScale(); err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	x.softmaxPerRound, x.countOnce, x.selfIfAlone, x.keepMasked = form == "fast-transformers", repeats == "once", self == "alone", masks == "kept"
	x.setting = fmt.Sprintf("reformer bucket=%d rounds=%d buckets=%d form=%s repeats=%s self=%s masks=%s scale=%s",
		x.bucket, x.rounds, x.buckets, form, repeats, self, masks, entry.FormatScale(x.scale))
	if err := r.Room("rotations", x.rounds, x.buckets/2, r.ParamWidth()); err != nil {
		return nil, err
	}
	x.rotations = x.constants.New("rotations", false, x.rounds, x.buckets/2, r.ParamWidth())
	for i := range x.rotations.Data {
		x.rotations.Data[i] = float(float32(key.Normal(uint64(i)))) // the same in both precisions
	}
	return x, nil
}

func (x *lshAttention) Traits() attention.Traits {
	t := attention.Traits{Name: "reformer", MixedQueries: true, Positive: true, Causal: !x.keepMasked}
	if !t.Causal {
		t.NoCausal = "with masks=kept also masked keys before the first query take a place in chunks"
	}
	return t
}

// NeedsPastQueries marks that the keys of earlier tokens are their queries.
func (x *lshAttention) NeedsPastQueries() {}

// CodeCount returns the number of buckets of a query, one a round.
func (x *lshAttention) CodeCount() int { return x.rounds }

// Code sets codes [queries, rounds] to the buckets of the queries of h in causal calls.
func (x *lshAttention) Code(h *headwise.Head, codes []int32) {
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	buckets := arena.Take[int32](h.Scratch, h.Q.Rows)
	for r := range x.rounds {
		AngularBuckets(h, buckets, h.Q, x.axes(r, x.buckets))
		for i, b := range buckets {
			codes[i*x.rounds+r] = b
		}
	}
}

func (x *lshAttention) Setting() string       { return x.setting }
func (x *lshAttention) Params() *param.Set    { return nil }
func (x *lshAttention) Constants() *param.Set { return &x.constants }

func (x *lshAttention) Check(c *attention.Call) error {
	if d := x.rotations.Shape[2]; c.Q.D != d {
		return fmt.Errorf("q: has width %d, rotations of reformer are for %d", c.Q.D, d)
	}
	refuse := func(m, n int64) error {
		return fmt.Errorf("k: a sequence has %d tokens, q has %d: the keys of reformer are its queries", m, n)
	}
	if c.CuQ == nil && c.K.N > c.Q.N {
		return refuse(int64(c.K.N), int64(c.Q.N))
	}
	for i := 1; i < len(c.CuQ); i++ {
		if n, m := c.CuQ[i]-c.CuQ[i-1], c.CuK[i]-c.CuK[i-1]; m > n {
			return refuse(m, n)
		}
	}
	return nil
}

// lshPass holds the sorted tokens of a head. It is the bias of its softmax, which hides
// a token from itself and discounts repeated keys.
type lshPass struct {
	softmax headwise.PatternSoftmax
	x       *lshAttention

	rounds, chunks int
	offset         int     // of the queries: query i is at the position of key i+offset
	keyCount       int     // keys that take a place in chunks
	order          []int32 // tokens of each round, sorted
	// keys are the sorted keys of each round, after a chunk that repeats the
	// last keys of the last round.
	keys []int32
	// chunk [tokens, rounds] is the chunk of each token, numbered over all rounds, in causal calls
	// over the buckets of a round.
	chunk []int32
	rank  []int32 // [tokens, rounds] in causal calls: keys of the bucket before each token
	logs  []float // log of the number of times that a key is found, over the scale
	tile  []int32 // keys of a tile
}

// newPass hashes and sorts the tokens of h.
func (x *lshAttention) newPass(h *headwise.Head) *lshPass {
	p, _ := x.passes.Get().(*lshPass)
	if p == nil {
		p = new(lshPass)
		p.softmax.Scale = x.scale
	}
	n, m, ar := h.Q.Rows, h.K.Rows, h.Scratch
	p.x, p.rounds, p.keyCount, p.offset = x, x.rounds, m, h.Offset
	if !x.keepMasked {
		p.keyCount = h.CountUnmasked()
	}
	if h.Causal {
		p.sortCausal(h)
		return p
	}
	if p.chunks = (p.keyCount + x.bucket - 1) / x.bucket; p.chunks == 1 {
		p.rounds = 1 // all rounds are equal
	}
	buckets := x.buckets
	if !x.softmaxPerRound {
		buckets = x.countBuckets(p.chunks)
	}
	p.take(h, n)
	mark := ar.Mark()
	defer ar.Reset(mark)
	groups := arena.Take[int32](ar, n)
	for r := range p.rounds {
		AngularBuckets(h, groups, h.Q, x.axes(r, buckets))
		inner := ar.Mark()
		order, _ := entry.SortGroups(ar, groups, buckets)
		copy(p.order[r*n:], order)
		ar.Reset(inner)
		keys, before := p.roundKeys(r), 0
		for _, i := range p.order[r*n : (r+1)*n] {
			p.chunk[int(i)*p.rounds+r] = int32(r*p.chunks + min(before/x.bucket, p.chunks-1))
			if int(i) < m && (x.keepMasked || h.IsUnmasked(int(i))) {
				keys[before] = i
				before++
			}
		}
	}
	last := p.roundKeys(p.rounds - 1)[(p.chunks-1)*x.bucket:]
	copy(p.keys[x.bucket-len(last):x.bucket], last)
	return p
}

// take takes memory for a number of tokens, and sets the bias.
func (p *lshPass) take(h *headwise.Head, tokens int) {
	x, ar := p.x, h.Scratch
	p.softmax.Bias = nil
	if x.selfIfAlone || p.discountsRepeats() {
		p.softmax.Bias = p
	}
	p.order, p.chunk = arena.Take[int32](ar, p.rounds*tokens), arena.Take[int32](ar, tokens*p.rounds)
	p.keys = arena.Take[int32](ar, x.bucket+p.rounds*p.keyCount)
	p.tile = arena.Take[int32](ar, 128)
	p.logs = arena.Take[float](ar, 2*p.rounds+1)
	scale := x.scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(h.Q.Cols))
	}
	for times := range p.logs { // scores are multiplied by the scale later
		p.logs[times] = float(math.Log(max(float64(times), 1)) / scale)
	}
}

// axes returns the first buckets/2 axes [buckets/2, D] of a round.
func (x *lshAttention) axes(round, buckets int) tensor.Mat {
	d := x.rotations.Shape[2]
	return tensor.Mat{Data: x.rotations.Data[round*x.buckets/2*d:], Rows: buckets / 2, Cols: d, Stride: d}
}

// countBuckets returns the number of buckets for a number of chunks.
func (x *lshAttention) countBuckets(chunks int) int {
	return min(x.buckets, max(2, chunks+chunks%2))
}

// releasePass keeps p for reuse.
func (x *lshAttention) releasePass(p *lshPass) {
	p.order, p.keys, p.chunk, p.rank, p.logs, p.tile = nil, nil, nil, nil, nil, nil
	x.passes.Put(p)
}

// discountsRepeats reports whether a key may be found in several rounds and counts
// once.
func (p *lshPass) discountsRepeats() bool {
	return p.x.countOnce && !p.x.softmaxPerRound && p.rounds > 1
}

// roundKeys returns the sorted keys of a round.
func (p *lshPass) roundKeys(round int) []int32 {
	return p.keys[p.x.bucket+round*p.keyCount:][:p.keyCount]
}

// chunkPairs returns the pairs of the chunks of rounds r0 ≤ r < r1. A chunk sees itself
// and the chunk before; the first chunk of a round sees the last chunk of the round
// before.
func (p *lshPass) chunkPairs(r0, r1 int) *headwise.Pattern {
	if p.rank != nil {
		return p.causalPairs(r0, r1)
	}
	pairs, size := headwise.NewPattern(), p.x.bucket
	n := len(p.order) / p.rounds
	for r := r0; r < r1; r++ {
		order, q0 := p.order[r*n:(r+1)*n], 0
		for c := range p.chunks {
			q1 := q0
			for q1 < n && int(p.chunk[int(order[q1])*p.rounds+r]) == r*p.chunks+c {
				q1++
			}
			from, end := size+r*p.keyCount+c*size, size+r*p.keyCount+min((c+1)*size, p.keyCount)
			switch {
			case c > 0:
				from -= size
			case p.chunks > 1 && !p.x.softmaxPerRound:
				from -= p.keyCount - (p.chunks-1)*size
			}
			lo, hi := pairs.AddPart(headwise.RowSet{N: q1 - q0, List: order[q0:q1]}, headwise.RowSet{N: end - from, List: p.keys[from:end]})
			for a := range lo {
				lo[a], hi[a] = 0, int32(end-from)
			}
			q0 = q1
		}
	}
	return pairs
}

// Add hides tokens from themselves, and subtracts from the scores of keys that several
// rounds find the logarithm of their number.
func (p *lshPass) Add(t *headwise.PatternTile) {
	keys := p.tile[:t.Columns]
	for c := range keys {
		keys[c] = int32(t.Key(c))
	}
	hidden := float(math.Inf(-1))
	for r := range t.Rows {
		i, row := int32(t.Query(r)+p.offset), t.S[r*t.LD:][:t.Columns]
		if p.discountsRepeats() {
			p.discountRepeats(i, keys, row)
		}
		for c, j := range keys {
			if j == i && p.x.selfIfAlone {
				row[c] = hidden
			}
		}
	}
}

// discountRepeats subtracts from the scores row [keys] of the query of token i the logarithm of
// the number of times that it finds each key.
func (p *lshPass) discountRepeats(i int32, keys []int32, row []float) {
	own := p.chunk[int(i)*p.rounds:][:p.rounds]
	first := false // the first chunk of a round sees the last chunk of the round before
	for r, c := range own {
		first = first || p.rank == nil && int(c) == r*p.chunks
	}
	for c, j := range keys {
		found := 0
		of := p.chunk[int(j)*p.rounds:][:len(own)]
		for r, at := range of {
			if uint32(own[r]-at) <= 1 {
				found++
			}
		}
		if first {
			for r, at := range of {
				next := (r + 1) % p.rounds
				if int(own[next]) == next*p.chunks && int(at) == (r+1)*p.chunks-1 {
					found++
				}
			}
		}
		row[c] -= p.logs[found]
	}
}

// Grad adds nothing: the terms of Add are constants.
func (p *lshPass) Grad(*headwise.PatternTile, *headwise.Grads) {}

// countParts returns the number of separate softmaxes.
func (p *lshPass) countParts() int {
	if p.x.softmaxPerRound {
		return p.rounds
	}
	return 1
}

// splitPart returns the pairs of softmax s, the logarithms of its sums [queries], and
// its output [queries, Dv].
func (p *lshPass) splitPart(h *headwise.Head, s int, saved []float) (pairs *headwise.Pattern, lse []float, out tensor.Mat) {
	n, dv := h.Q.Rows, h.V.Cols
	if p.countParts() == 1 {
		return p.chunkPairs(0, p.rounds), saved, h.Out
	}
	of := saved[s*n*(1+dv):]
	return p.chunkPairs(s, s+1), of[:n], tensor.Mat{Data: of[n:], Rows: n, Cols: dv, Stride: dv}
}

// savedSize returns the number of elements that Forward saves.
func (p *lshPass) savedSize(h *headwise.Head) int {
	if n := h.Q.Rows; p.countParts() > 1 {
		return p.countParts() * n * (1 + h.V.Cols)
	}
	return h.Q.Rows
}

// seesNoKey reports whether a query with log-sum-exp lse sees no other key.
func seesNoKey(lse float) bool { return math.IsInf(float64(lse), -1) }

// asksItself reports whether query i stands at an unmasked key.
func asksItself(h *headwise.Head, i int) bool {
	i += h.Offset
	return i < h.K.Rows && h.IsUnmasked(i)
}

// tokenQuery returns the query of token j, nil if the call does not contain it.
func tokenQuery(h *headwise.Head, j int) []float {
	switch i := j - h.Offset; {
	case i >= 0 && i < h.Q.Rows:
		return h.Q.Row(i)
	case i < 0 && h.PastQueries.Rows > 0:
		return h.PastQueries.Row(j)
	}
	return nil
}

// partWeight returns the weight of each softmax in the output of query i: one over the
// number of softmaxes in which it sees a key.
func (p *lshPass) partWeight(h *headwise.Head, i int, saved []float) float {
	n, some := h.Q.Rows, 0
	for s := range p.countParts() {
		if !seesNoKey(saved[s*n*(1+h.V.Cols)+i]) || asksItself(h, i) {
			some++
		}
	}
	return 1 / float(max(some, 1))
}

// unitKeys returns the keys [keys, D], queries of length 1, and the lengths [keys] of the
// queries. A query of length 0, or of infinite length, has a key of zeros and the length 0.
func unitKeys(h *headwise.Head) (k tensor.Mat, lengths []float64) {
	k, lengths = h.TakeScratch(h.K.Rows, h.Q.Cols), arena.Take[float64](h.Scratch, h.K.Rows)
	for j := range lengths {
		q := tokenQuery(h, j)
		length := scratch.Norm2(q)
		if q == nil {
			clear(k.Row(j))
		}
		if math.IsInf(length, 1) {
			length = 0
		}
		lengths[j] = length
		factor := inverseLength(length)
		for c, x := range q {
			y := float64(x) * factor
			if math.IsInf(factor, 1) {
				y = float64(x) / length
			}
			k.Row(j)[c] = float(y)
		}
	}
	return k, lengths
}

// inverseLength returns 1/length, 0 for a length of 0. It is infinite for a subnormal
// length whose inverse is beyond float64.
func inverseLength(length float64) float64 {
	if length > 0 {
		return 1 / length
	}
	return 0
}

func (x *lshAttention) Forward(h *headwise.Head) {
	p := x.newPass(h)
	defer x.releasePass(p)
	saved, out, keys := h.SaveBuffer(p.savedSize(h)), h.Out, h.K
	h.K, _ = unitKeys(h)
	for s := range p.countParts() {
		pairs, lse, o := p.splitPart(h, s, saved)
		h.Out = o
		p.softmax.Forward(h, lse, pairs)
		pairs.Release()
		h.Out = out
		for i, l := range lse {
			if seesNoKey(l) && asksItself(h, i) {
				copy(o.Row(i), h.V.Row(i+h.Offset))
			}
		}
	}
	h.K, h.UnseenQueries = keys, 0
	for i := range h.Q.Rows {
		if p.countParts() == 1 {
			if seesNoKey(saved[i]) && !asksItself(h, i) {
				h.UnseenQueries++
			}
			continue
		}
		clear(out.Row(i))
		share, seen := p.partWeight(h, i, saved), asksItself(h, i)
		for s := range p.countParts() {
			of := saved[s*h.Q.Rows*(1+h.V.Cols):]
			seen = seen || !seesNoKey(of[i])
			h.Table.Axpy(out.Row(i), share, of[h.Q.Rows+i*h.V.Cols:][:h.V.Cols])
		}
		if !seen {
			h.UnseenQueries++
		}
	}
}

func (x *lshAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	p := x.newPass(h)
	defer x.releasePass(p)
	g.Clear()
	keys := h.K
	var lengths []float64
	h.K, lengths = unitKeys(h)
	dout := g.DOut
	if p.countParts() > 1 {
		dout = h.TakeScratch(dout.Rows, dout.Cols)
		for i := range dout.Rows {
			h.Table.Scale(dout.Row(i), p.partWeight(h, i, h.Saved), g.DOut.Row(i))
		}
	}
	for s := range p.countParts() {
		pairs, lse, o := p.splitPart(h, s, h.Saved)
		p.softmax.Backward(h, g, o, dout, lse, pairs)
		pairs.Release()
		for i, l := range lse {
			if seesNoKey(l) && asksItself(h, i) {
				dv := g.DV.Row(i + h.Offset)
				h.Table.Add(dv, dv, dout.Row(i))
			}
		}
	}
	// With k = q/|q|: dq = (dk - k·(dk·k))/|q|.
	for j, length := range lengths {
		k, dk := h.K.Row(j), g.DK.Row(j)
		if i := j - h.Offset; i >= 0 {
			h.Table.Axpy(dk, -h.Table.Dot(dk, k), k)
			if factor := float(inverseLength(length)); !math.IsInf(float64(factor), 1) {
				h.Table.Axpy(g.DQ.Row(i), factor, dk)
			} else {
				for c, y := range dk {
					g.DQ.Row(i)[c] += float(float64(y) / length)
				}
			}
		}
		clear(dk)
	}
	h.K = keys
}

func (x *lshAttention) Cost(s attention.Shape) headwise.Cost {
	n, d, dv, rounds := float64(s.N), float64(s.D), float64(s.Dv), float64(x.rounds)
	buckets := x.buckets
	if !x.softmaxPerRound && !s.Causal {
		buckets = x.countBuckets((s.M + x.bucket - 1) / x.bucket)
	}
	seen := min(2*float64(x.bucket), float64(s.M))
	bytes := n
	if x.softmaxPerRound {
		bytes = rounds * n * (1 + dv)
	}
	return headwise.Cost{
		FLOPs: rounds * n * (float64(buckets)*d + 2*seen*(d+dv+3)),
		Bytes: entry.ElementBytes()*(bytes+float64(s.M)*d) + 4*rounds*5*n,
	}
}
