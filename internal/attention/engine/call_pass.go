package engine

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Forward computes key head kh of sequence s in the forward pass, as task u.
func (p *callPass) Forward(s *SequenceTask, kh int, u *headtask.Task) {
	c, keep := p.c, p.keep
	u.O = HeadsOf(u.O, p.out, s, u.QueryHeads(kh))
	if u.SavesDen = keep != nil; u.SavesDen {
		u.Den = DenOf(u.Den, keep.Den, c, s, u.QueryHeads(kh))
		if sums := bandSumsOf(keep); sums != nil {
			u.Sums = SumsOf(u.Sums, sums, c, s, u.QueryHeads(kh))
			u.SavesDen = !sums.Logless
		}
		u.SavedMoments = &keep.Moments[s.Index*c.K.H+kh]
		*u.SavedMoments = (*u.SavedMoments)[:0]
	} else {
		for range u.Q {
			u.Den = append(u.Den, arena.Take[float](u.Arena, u.N))
		}
	}
	switch {
	case p.seg != nil:
		p.seg.Forward(u, s, kh)
	case s.Form == attention.Linear:
		u.LinearForward(p.e.MonomialsOf(u))
	case p.e.Spec.WindowWidth > 0:
		u.BandForward()
	default:
		u.DirectForward()
	}
}

// Backward computes key head kh of sequence s in the backward pass, as task u.
func (p *callPass) Backward(s *SequenceTask, kh int, u *headtask.Task) {
	c, g, keep, heads := p.c, &p.g, p.keep, u.QueryHeads(kh)
	u.O = HeadsOf(u.O, p.out, s, heads)
	u.DO = HeadsOf(u.DO, p.dout, s, heads)
	u.DQ = HeadsOf(u.DQ, g.DQ, s, heads)
	u.DK = g.DK.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	u.DVal = g.DV.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	u.Shares = u.Shares[:0]
	if sums := bandSumsOf(keep); sums != nil && sums.Adds {
		u.Adds, u.Shares = true, DenOf(u.Shares, sums.Shares, c, s, heads)
	}
	u.Den = DenOf(u.Den, keep.Den, c, s, heads)
	if len(keep.Moments) == len(p.seqs)*c.K.H {
		u.SavedMoments = &keep.Moments[s.Index*c.K.H+kh]
	}
	u.DScale = p.dscale[s.Index*c.Q.H+heads.Lo:][:heads.N]
	if p.e.Spec.OutputNorm {
		u.WithoutOutputNorm(p.countPriorKeys(s, kh))
	}
	decays := c.HasDecay() && g.DLogG.D != 0
	if decays {
		u.DLogG = g.DLogG.Head(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	}
	if decays || g.DInit != nil && HasFadingKeys(c) {
		u.DAge = arena.TakeZeros[float64](u.Arena, max(u.PositionCount(), u.M+1))
	}
	if decays && p.e.Spec.Gated {
		u.DGate = arena.TakeZeros[float64](u.Arena, u.M)
	}
	after := ageAfter(g, s.Index*c.K.H+kh)
	switch {
	case p.seg != nil:
		p.seg.Backward(u, s, kh, g)
	case s.Form == attention.Linear:
		u.LinearBackward(p.e.MonomialsOf(u))
	case p.e.Spec.WindowWidth > 0:
		u.BandBackward()
	default:
		u.DirectBackward()
	}
	if u.DAge != nil {
		sum := u.AgeGrad(after, s.priorKeys > 0)
		if g.DInit != nil {
			StateGradOf(g.DInit).Heads[s.Index*c.K.H+kh].Age = sum
		}
	}
	// Keys beyond the row's key length take no part.
	for j := s.K0 + s.M; j < s.K0+s.Keys; j++ {
		clear(g.DK.Head(s.Batch, kh).Row(j))
		clear(g.DV.Head(s.Batch, kh).Row(j))
		if decays {
			clear(g.DLogG.Head(s.Batch, kh).Row(j))
		}
	}
}

// HeadsOf appends to m the rows of x [B,H,N,D] that belong to sequence s, for each head of a
// range.
func HeadsOf(m []tensor.Mat, x tensor.Heads, s *SequenceTask, r headtask.HeadRange) []tensor.Mat {
	for h := range r.N {
		m = append(m, x.Head(s.Batch, r.Lo+h).Slice(s.Q0, s.Q0+s.N))
	}
	return m
}

// DenOf appends to d the denominators in den [B,H,N] that belong to sequence s, for each head
// of a range.
func DenOf(d [][]float, den []float, c *attention.Call, s *SequenceTask, r headtask.HeadRange) [][]float {
	for h := range r.N {
		d = append(d, den[(s.Batch*c.Q.H+r.Lo+h)*c.Q.N+s.Q0:][:s.N])
	}
	return d
}

// callPass is Forward or Backward of one call, whose pieces are the key heads of
// its sequences.
type callPass struct {
	e    *Engine
	c    *attention.Call
	seqs []SequenceTask
	room []attention.Sequence // of the call
	out  tensor.Heads
	keep *attention.Saved
	seg  segment // nil where no state comes before or after; see headtask.LinearForward and keyCacheSegment

	back   bool
	dout   tensor.Heads
	g      attention.Grads
	dscale []float64 // [sequences, H]

	dparams []float // [sequences, Hkv] gradients of the features' parameters

	work float64 // arithmetic of all sequences

	noticed headtask.RowNotices
}

// newPass returns a pass forward. Release takes it back.
func (e *Engine) newPass(c *attention.Call, out tensor.Heads, keep *attention.Saved) *callPass {
	p, _ := e.passes.Get().(*callPass)
	if p == nil {
		p = new(callPass)
	}
	*p = callPass{e: e, c: c, seqs: e.Sequences(p.seqs[:0], &p.room, c), room: p.room, out: out, keep: keep, dscale: p.dscale[:0], dparams: p.dparams[:0]}
	return p
}

// Sequences appends to list the sequences of c. If the mechanism has a lag, the last keys of
// each sequence are left out, as if its key length were shorter.
func (e *Engine) Sequences(list []SequenceTask, room *[]attention.Sequence, c *attention.Call) []SequenceTask {
	list = AppendSequenceTasks(list, room, c)
	for i := range list {
		list[i].M = max(list[i].M-e.Spec.FarLag, 0)
		list[i].Offset -= e.Spec.FarLag
	}
	return list
}

// release keeps p for another call, without what it points at.
func (p *callPass) release() {
	e := p.e
	*p = callPass{seqs: p.seqs, room: p.room, dscale: p.dscale, dparams: p.dparams}
	e.passes.Put(p)
}

// run chooses the form of every sequence and does its key heads, in parallel.
func (p *callPass) run() {
	p.e.measure(p.c, p.seqs)
	for i := range p.seqs {
		s := &p.seqs[i]
		s.Form = p.e.choose(p.c, s, p.back)
		s.Work = p.e.CountFLOPs(p.c, s)
		if p.back {
			s.Work *= 3
		}
		p.work += s.Work
	}
	par.Run(len(p.seqs)*p.c.K.H, 1, p.work, passTask{p})
	if p.back {
		p.e.wideGrad(p.c, p.seqs, &p.g)
	}
}

// passTask is the pass as a task.
type passTask struct{ *callPass }

func (p *callPass) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		p.head(&p.seqs[i/p.c.K.H], i%p.c.K.H)
	}
}

// head does key head kh of sequence s.
func (p *callPass) head(s *SequenceTask, kh int) {
	ar := arena.Acquire()
	defer ar.Release()
	u := p.e.NewTask(p.c, s, kh, ar)
	u.Workers = headtask.CountWorkers(p.c.K.H, s.Work, p.work)
	if p.back && p.e.Spec.LearnsFeatures() {
		u.Workers = 1 // what tokens give the parameters is summed in their order
		u.DParams = p.paramGradsOf(s.Index*p.c.K.H + kh)
	}
	if p.back {
		p.Backward(s, kh, u)
	} else {
		u.Noticed = &p.noticed
		p.Forward(s, kh, u)
	}
	p.e.Release(u)
}

// countPriorKeys returns the number of keys of a key head in the state before a sequence.
func (p *callPass) countPriorKeys(s *SequenceTask, kh int) float64 {
	if st, is := p.c.Init.(*RecurrentState); is && st != nil {
		h := st.Heads[s.Index*p.c.K.H+kh]
		return h.CountClosedKeys() + float64(h.CountOpenKeys(h.Count))
	}
	if p.seg != nil {
		return float64(p.seg.countPriorKeys(s.Index))
	}
	return 0
}

// addParamGrads adds the gradients of all tasks to the parameters'.
func (p *callPass) addParamGrads() {
	t := kernel.Active[float]()
	from := p.dparams
	for len(from) > 0 {
		for _, x := range p.e.Spec.Features.Params().All() {
			t.Add(x.Grad, x.Grad, from[:len(x.Grad)])
			from = from[len(x.Grad):]
		}
	}
}

// paramGradsOf returns the parts of dparams that belong to task i.
func (p *callPass) paramGradsOf(i int) (parts [][]float) {
	all := p.e.Spec.Features.Params().All()
	size := p.e.Spec.Features.Params().Size()
	from := p.dparams[i*size:][:size]
	for _, x := range all {
		parts = append(parts, from[:len(x.Data)])
		from = from[len(x.Data):]
	}
	return parts
}

// bandSumsOf returns the sums of a band that Forward is to leave in keep; nil: none are wanted.
func bandSumsOf(keep *attention.Saved) *headtask.BandSums {
	sums, _ := keep.Own.(*headtask.BandSums)
	return sums
}

// SumsOf appends to list the sums of a band that belong to sequence q, for each head of a
// range.
func SumsOf(list []rowscale.Sums, s *headtask.BandSums, c *attention.Call, q *SequenceTask, r headtask.HeadRange) []rowscale.Sums {
	for h := range r.N {
		at := (q.Batch*c.Q.H+r.Lo+h)*c.Q.N + q.Q0
		list = append(list, s.Slice(at, at+q.N))
	}
	return list
}

// SequenceTask is a sequence of a call, with its form and the other data that an engine needs.
type SequenceTask struct {
	attention.Sequence
	Form attention.Form
	Work float64 // floating-point operations of all heads

	priorKeys int64                // keys of the state before it, 0 if all are masked
	stats     []headtask.NormStats // of the queries of every head, then of the keys; nil: none
}

// SequenceTasks returns the sequences of a call.
func SequenceTasks(c *attention.Call) []SequenceTask {
	return AppendSequenceTasks(nil, new([]attention.Sequence), c)
}

// AppendSequenceTasks appends the sequences of a call to list. room is reused memory.
func AppendSequenceTasks(list []SequenceTask, room *[]attention.Sequence, c *attention.Call) []SequenceTask {
	*room = c.AppendSequences((*room)[:0])
	for _, s := range *room {
		list = append(list, SequenceTask{Sequence: s})
	}
	return list
}

// Normalisations with statistics over all tokens of a sequence are affine maps of each
// row, once the statistics are known. They are applied before the engines start. Their
// gradient is completed after the engines end, so the engines need not know them.

// rowsOf are the queries or keys of one head of a sequence, and their
// gradients.
type rowsOf struct {
	x, dx tensor.Mat
	mask  []bool // unmasked tokens; nil: all
}

func (r *rowsOf) exists(t int) bool { return r.mask == nil || r.mask[t] }

// sides calls f in parallel, for the queries of each head of each sequence and for the keys of
// each key head. i is their index in the sequence's statistics.
func (e *Engine) sides(c *attention.Call, seqs []SequenceTask, g *attention.Grads, f func(s *SequenceTask, i int, r rowsOf)) {
	heads := c.Q.H + c.K.H
	work := 8 * float64(c.Q.D*c.Q.B) * (float64(c.Q.N)*float64(c.Q.H) + float64(c.K.N)*float64(c.K.H))
	par.RunEach(len(seqs)*heads, work, func(at int) {
		s, i := &seqs[at/heads], at%heads
		var r rowsOf
		if i < c.Q.H {
			r.x = c.Q.Head(s.Batch, i).Slice(s.Q0, s.Q0+s.N)
			if g != nil {
				r.dx = g.DQ.Head(s.Batch, i).Slice(s.Q0, s.Q0+s.N)
			}
		} else {
			r.x = c.K.Head(s.Batch, i-c.Q.H).Slice(s.K0, s.K0+s.M)
			if g != nil {
				r.dx = g.DK.Head(s.Batch, i-c.Q.H).Slice(s.K0, s.K0+s.M)
			}
			if c.KeyMask != nil {
				r.mask = c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
			}
		}
		f(s, i, r)
	})
}

// measure takes the statistics of sequences, where the normalisation has any.
func (e *Engine) measure(c *attention.Call, seqs []SequenceTask) {
	norm := e.Spec.Norm
	if !norm.NeedsAllTokens() {
		return
	}
	for i := range seqs {
		seqs[i].stats = make([]headtask.NormStats, c.Q.H+c.K.H)
	}
	if norm == attention.TokenCentred || norm == attention.GlobalCentred {
		e.sides(c, seqs, nil, func(s *SequenceTask, i int, r rowsOf) { s.stats[i].Mean = r.means(r.x) })
	}
	for i := range seqs {
		if st := seqs[i].stats; norm == attention.GlobalCentred {
			shareMean(st[:c.Q.H])
			shareMean(st[c.Q.H:])
		}
	}
	e.sides(c, seqs, nil, func(s *SequenceTask, i int, r rowsOf) {
		st, row := &s.stats[i], make([]float64, c.Q.D)
		for t := range r.x.Rows {
			if !r.exists(t) {
				continue
			}
			headtask.CentreRow(row, r.x.Row(t), norm, st)
			if l := scratch.Norm2(row); l > st.Length {
				st.Length, st.Place = l, t
			}
		}
	})
}

// means returns the mean row of x. It is taken of the differences from the
// first token, so that it is exactly that token where all are equal.
func (r *rowsOf) means(x tensor.Mat) []float64 {
	mean, n, first := make([]float64, x.Cols), 0, 0
	for t := range x.Rows {
		if !r.exists(t) {
			continue
		}
		if n++; n == 1 {
			first = t
		}
		for c, y := range x.Row(t) {
			mean[c] += float64(y) - float64(x.Row(first)[c])
		}
	}
	for c := range mean {
		if n > 0 {
			mean[c] = mean[c]/float64(n) + float64(x.Row(first)[c])
		}
	}
	return mean
}

// shareMean gives heads that have equally many tokens the one mean of all.
func shareMean(heads []headtask.NormStats) {
	if len(heads) == 0 {
		return
	}
	first := heads[0].Mean[0]
	var sum float64
	n := 0
	for _, h := range heads {
		for _, y := range h.Mean {
			sum += y - first
			n++
		}
	}
	mean := []float64{sum/float64(n) + first}
	for h := range heads {
		heads[h].Mean = mean
	}
}

// wideGrad adds the part of the gradients that comes from the statistics of a normalisation
// over all tokens. Let x̃ be the centred rows, x̂ = x̃·factor, and dx̃ gradients that already
// contain the factor. The gradient of the largest norm M is
//
//	dM = -power·Σ_t dx̃_t·x̃_t / M.
//
// It is added to the token with that norm, in the direction x̃/M. The mean that was subtracted
// from rows is subtracted from gradients, too.
func (e *Engine) wideGrad(c *attention.Call, seqs []SequenceTask, g *attention.Grads) {
	norm := e.Spec.Norm
	if !norm.NeedsAllTokens() {
		return
	}
	heads := c.Q.H + c.K.H
	means := make([]headtask.NormStats, len(seqs)*heads) // of the gradients
	e.sides(c, seqs, g, func(s *SequenceTask, i int, r rowsOf) {
		st, row := &s.stats[i], make([]float64, c.Q.D)
		if _, power := norm.InvertLength(st.Length); power > 0 {
			var along float64
			for t := range r.x.Rows {
				if r.exists(t) {
					headtask.CentreRow(row, r.x.Row(t), norm, st)
					for c, y := range r.dx.Row(t) {
						along += float64(y) * row[c]
					}
				}
			}
			divisor := 1.0 // of the row
			if square := st.Length * st.Length; !math.IsInf(square, 1) {
				along *= float64(power) / square
			} else {
				along *= float64(power) / st.Length
				divisor = st.Length
			}
			headtask.CentreRow(row, r.x.Row(st.Place), norm, st)
			for c, y := range row {
				r.dx.Row(st.Place)[c] -= float(along * (y / divisor))
			}
		}
		switch norm {
		case attention.ChannelCentred:
			r.subtract(row, norm, &headtask.NormStats{})
		case attention.TokenCentred:
			r.subtract(row, norm, &headtask.NormStats{Mean: r.means(r.dx)})
		case attention.GlobalCentred:
			means[s.Index*heads+i].Mean = r.means(r.dx)
		}
	})
	if norm != attention.GlobalCentred {
		return
	}
	for i := range seqs {
		m := means[i*heads:][:heads]
		shareMean(m[:c.Q.H])
		shareMean(m[c.Q.H:])
	}
	e.sides(c, seqs, g, func(s *SequenceTask, i int, r rowsOf) {
		r.subtract(make([]float64, c.Q.D), norm, &means[s.Index*heads+i])
	})
}

// subtract centres the gradients of unmasked tokens.
func (r *rowsOf) subtract(row []float64, norm attention.Norm, s *headtask.NormStats) {
	for t := range r.dx.Rows {
		if !r.exists(t) {
			continue
		}
		dx := r.dx.Row(t)
		headtask.CentreRow(row, dx, norm, s)
		for c, y := range row {
			dx[c] = float(y)
		}
	}
}

// segment returns c as a segment, whose sequences are seqs; nil if it is none.
// Keep says that Backward will be asked.
func (e *Engine) segment(c *attention.Call, seqs []SequenceTask, keep bool) (segment, error) {
	if !c.HasState() {
		return nil, nil
	}
	keys, err := e.CheckSegment(c, seqs, keep)
	if err != nil {
		return nil, err
	}
	start := newSumsSegment
	if e.Spec.IsPairwise() {
		start = newCacheSegment
	}
	x, err := start(e, c, seqs, keys)
	if err != nil {
		return nil, err
	}
	for i := range seqs {
		seqs[i].priorKeys = x.countPriorKeys(i)
	}
	return x, nil
}

// IsWellConditioned reports whether no denominator of c can cancel, because weights are never
// negative and positive at all possible scores, also with dropout. They can still be so small
// that all weights of a row underflow.
func (e *Engine) IsWellConditioned(c *attention.Call) bool {
	s := &e.Spec
	if s.Unnormalized || s.Floor > 0 {
		return true
	}
	if s.MapsToZeros() {
		return s.Positive && s.Eps > 0
	}
	if s.Exp || !s.Positive || s.HasMap() {
		return s.Exp || s.Positive
	}
	if s.Similarity != nil {
		return s.AbsPoly(0) > 0
	}
	return s.HasNoRoot(c.Q.D, headtask.ScoreGain(c.Drop))
}

// largestWeight returns the bound for weak of weights of c with scores within ±reach.
// Negative: only a denominator of 0 is weak.
func (e *Engine) largestWeight(c *attention.Call, reach float64) float64 {
	if s := &e.Spec; e.IsWellConditioned(c) || s.IsPositive(headtask.ScoreGain(c.Drop)) && (s.HasMap() || s.Similarity != nil || s.Coef[0] <= 0) {
		return -1
	}
	if math.IsInf(reach, 1) {
		reach = 0 // nothing bounds the scores of mapped rows
	}
	return e.Spec.AbsPoly(reach)
}

// BoundScore returns a bound of |s| for query i of head h of a sequence. It comes from the
// normalisation or, if longest is not nil, from the lengths of the query and the longest key.
func (e *Engine) BoundScore(c *attention.Call, s *SequenceTask, longest []float64, h, i int) float64 {
	if p, ok := e.Spec.Map.(headtask.Products); ok {
		return headtask.ScoreGain(c.Drop) * e.Spec.ProductReach(p.Coef, c.Q.D, h)
	}
	if longest == nil {
		return headtask.ScoreGain(c.Drop) * e.Spec.MaxScore(c.Q.D, h)
	}
	x := scratch.Norm2(c.Q.Head(s.Batch, h).Row(s.Q0 + i))
	return math.Abs(float64(e.Spec.RowScale(c.Q.D, h))) * x * longest[h/(c.Q.H/c.K.H)] * headtask.ScoreGain(c.Drop)
}

// LongestKeys returns the length of the longest unmasked key of each key head of a sequence. It
// returns nil if the lengths are not needed: if keys are normalised or mapped, or weights are
// never negative.
func (e *Engine) LongestKeys(c *attention.Call, s *SequenceTask, mask []bool) []float64 {
	if e.Spec.Norm != attention.NoNorm || e.Spec.HasMap() || e.Spec.Positive {
		return nil
	}
	longest := make([]float64, c.K.H)
	for h := range longest {
		k := c.K.Head(s.Batch, h)
		for j := range s.M {
			if mask == nil || mask[j] {
				longest[h] = max(longest[h], scratch.Norm2(k.Row(s.K0+j)))
			}
		}
	}
	return longest
}

// countEffectiveKeys returns, for each key head of s and each query, the number of visible keys; with
// decay the sum of their factors. before holds this of the initial state for each key
// head.
func (e *Engine) countEffectiveKeys(c *attention.Call, s *SequenceTask, mask []bool, before []headtask.PriorKeys) [][]float64 {
	left := make([][]float64, c.K.H)
	for h := range left {
		a, x := headtask.HeapAges(s.M), before[h]
		a.Pending = x.PendingLogDecay
		rate := func(j int) float64 { return 0 }
		if c.HasDecay() {
			g := c.LogG.Head(s.Batch, h)
			rate = func(j int) float64 { return float64(g.Row(s.K0 + j)[0]) }
		}
		enters := func(j int) float64 { return 1 }
		if c.HasDecay() && e.Spec.Gated {
			enters = func(j int) float64 { return -math.Expm1(rate(j)) }
		}
		keys := make([]float64, s.M+1) // those before each, where all pairs are kept
		for j := range s.M {
			exists := mask == nil || mask[j]
			keys[j] = x.Count
			if a.Add(rate(j), exists); exists {
				x.Add(a.SumBetween(j-1, j), enters(j))
			}
		}
		keys[s.M] = x.Count
		left[h] = make([]float64, s.N)
		for i := range left[h] {
			end := s.M
			if c.Causal {
				end = min(max(i+s.Offset+1, 0), s.M)
			}
			if c.AttnKeep == nil {
				left[h][i] = keys[end]
				continue
			}
			last := -1
			for j := end - 1; j >= 0; j-- {
				if !c.AttnKeep[(s.Q0+i)*c.K.N+s.K0+j] || mask != nil && !mask[j] {
					continue
				}
				last = max(last, j)
				left[h][i] += enters(j) * math.Exp(a.SumBetween(j, last))
			}
		}
	}
	return left
}

// countWeakRows counts the queries that see no key and those whose denominator nearly
// cancels, or has vanished.
func (e *Engine) countWeakRows(c *attention.Call, seqs []SequenceTask, seg segment, keep *attention.Saved, vanished bool) {
	for i := range seqs {
		s := &seqs[i]
		var mask []bool
		if c.KeyMask != nil {
			mask = c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
		}
		sound := e.IsWellConditioned(c) && !vanished // no denominator cancels
		if sound && (mask == nil && c.AttnKeep == nil || s.priorKeys > 0) {
			unseen := 0
			switch {
			case s.priorKeys > 0:
			case s.M == 0:
				unseen = s.N
			case c.Causal:
				unseen = min(max(-s.Offset, 0), s.N)
			}
			keep.UnseenCount += int64(unseen) * int64(c.Q.H)
			continue
		}
		exist := make([]int, s.M+1) // unmasked keys before j
		for j := range s.M {
			exist[j+1] = exist[j]
			if mask == nil || mask[j] {
				exist[j+1]++
			}
		}
		longest := e.LongestKeys(c, s, mask)
		var left [][]float64
		if (HasFadingKeys(c) || c.Init != nil) && !sound {
			before := make([]headtask.PriorKeys, c.K.H)
			for h := range before {
				if seg == nil {
					break
				}
				before[h] = seg.Earlier(i*c.K.H + h)
				if longest != nil {
					longest[h] = max(longest[h], before[h].Longest)
				}
			}
			left = e.countEffectiveKeys(c, s, mask, before)
		}
		most := make([]float64, c.Q.H)
		if !sound && longest == nil { // the same for all queries
			for h := range most {
				most[h] = e.largestWeight(c, e.BoundScore(c, s, nil, h, 0))
			}
		}
		for i := range s.N {
			last := s.M
			if c.Causal {
				last = min(max(i+s.Offset+1, 0), s.M)
			}
			seen := s.priorKeys + int64(exist[last])
			if c.AttnKeep != nil {
				seen = 0
				for j := range last {
					if c.AttnKeep[(s.Q0+i)*c.K.N+s.K0+j] && (mask == nil || mask[j]) {
						seen++
					}
				}
			}
			if seen == 0 {
				keep.UnseenCount += int64(c.Q.H)
				continue
			}
			if sound {
				continue
			}
			for h := range c.Q.H {
				den := keep.Den[(s.Batch*c.Q.H+h)*c.Q.N+s.Q0+i]
				keys := float64(seen)
				if left != nil {
					keys = left[h/(c.Q.H/c.K.H)][i]
				}
				if longest != nil {
					most[h] = e.largestWeight(c, e.BoundScore(c, s, longest, h, i))
				}
				if headtask.IsIllConditioned(den, keys, most[h]) {
					if keep.WeakCount == 0 {
						keep.WeakAt = [3]int{s.Batch, h, s.Q0 + i}
					}
					keep.WeakCount++
				}
			}
		}
	}
}

// gateFactor returns the gate factor of a key in a state, found from the length of its
// features: without a gate the features have the length of their bound.
func gateFactor(s *headtask.Spec, length float64) float64 {
	if b, ok := s.Features.(attention.BoundedProduct); ok && s.Gated {
		return length / math.Sqrt(b.Bound())
	}
	return 1
}
