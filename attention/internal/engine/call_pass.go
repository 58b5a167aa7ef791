package engine

import (
	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/rowscale"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Forward does a head of Forward.
func (p *callPass[T]) Forward(s *SequenceTask, kh int, u *headtask.Task[T]) {
	c, keep := p.c, p.keep
	u.O = HeadsOf(u.O, p.out, s, u.QueryHeads(kh))
	if u.SavesDen = keep != nil; u.SavesDen {
		u.Den = DenOf(u.Den, keep.Den, c, s, u.QueryHeads(kh))
		if sums := contract.SavedPartsOf(keep).Sums; sums != nil {
			u.Sums = SumsOf(u.Sums, sums, c, s, u.QueryHeads(kh))
			u.SavesDen = !sums.Logless
		}
		u.SavedMoments = &keep.Moments[s.Index*c.K.H+kh]
		*u.SavedMoments = (*u.SavedMoments)[:0]
	} else {
		for range u.Q {
			u.Den = append(u.Den, arena.Take[T](u.Arena, u.N))
		}
	}
	switch {
	case p.seg != nil:
		p.seg.Forward(u, s, kh)
	case s.Form == contract.Linear:
		u.Linear().LinearForward(p.e.MonomialsOf(u))
	case p.e.Spec.WindowWidth > 0:
		u.Band().BandForward()
	default:
		u.Direct().DirectForward()
	}
}

// Backward does a head of Backward.
func (p *callPass[T]) Backward(s *SequenceTask, kh int, u *headtask.Task[T]) {
	c, g, keep, heads := p.c, &p.g, p.keep, u.QueryHeads(kh)
	u.O = HeadsOf(u.O, p.out, s, heads)
	u.DO = HeadsOf(u.DO, p.dout, s, heads)
	u.DQ = HeadsOf(u.DQ, g.DQ, s, heads)
	u.DK = g.DK.At(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	u.DVal = g.DV.At(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	u.Shares = u.Shares[:0]
	if sums := contract.SavedPartsOf(keep).Sums; sums != nil && sums.Adds {
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
		u.DLogG = g.DLogG.At(s.Batch, kh).Slice(s.K0, s.K0+s.M)
	}
	if decays || g.DInit != nil && HasFadingKeys(c) {
		u.DAge = arena.TakeZeros[float64](u.Arena, max(u.Linear().PositionCount(), u.M+1))
	}
	if decays && p.e.Spec.Gated {
		u.DGate = arena.TakeZeros[float64](u.Arena, u.M)
	}
	after := ageAfter(g, s.Index*c.K.H+kh)
	switch {
	case p.seg != nil:
		p.seg.Backward(u, s, kh, g)
	case s.Form == contract.Linear:
		u.Linear().LinearBackward(p.e.MonomialsOf(u))
	case p.e.Spec.WindowWidth > 0:
		u.Band().BandBackward()
	default:
		u.Direct().DirectBackward()
	}
	if u.DAge != nil {
		sum := u.Decay().AgeGrad(after, s.priorKeys > 0)
		if g.DInit != nil {
			contract.GradPartsOf(g.DInit).Heads[s.Index*c.K.H+kh].Age = sum
		}
	}
	// Keys beyond the row's key length take no part.
	for j := s.K0 + s.M; j < s.K0+s.Keys; j++ {
		clear(g.DK.At(s.Batch, kh).Row(j))
		clear(g.DV.At(s.Batch, kh).Row(j))
		if decays {
			clear(g.DLogG.At(s.Batch, kh).Row(j))
		}
	}
}

// HeadsOf appends to m the rows that a sequence has in a range of heads.
func HeadsOf[T tensor.Float](m []tensor.Mat[T], x tensor.Heads[T], s *SequenceTask, r headtask.HeadRange) []tensor.Mat[T] {
	for h := range r.N {
		m = append(m, x.At(s.Batch, r.Lo+h).Slice(s.Q0, s.Q0+s.N))
	}
	return m
}

// DenOf appends to d the denominators den [B,H,N] of a sequence in a range of heads.
func DenOf[T tensor.Float](d [][]T, den []T, c *contract.Call[T], s *SequenceTask, r headtask.HeadRange) [][]T {
	for h := range r.N {
		d = append(d, den[(s.Batch*c.Q.H+r.Lo+h)*c.Q.N+s.Q0:][:s.N])
	}
	return d
}

// callPass is Forward or Backward of one call, whose pieces are the key heads of
// its sequences.
type callPass[T tensor.Float] struct {
	e    *Engine[T]
	c    *contract.Call[T]
	seqs []SequenceTask
	room []contract.Sequence // of the call
	out  tensor.Heads[T]
	keep *contract.Saved[T]
	seg  segment[T] // nil where no state comes before or after

	back   bool
	dout   tensor.Heads[T]
	g      contract.Grads[T]
	dscale []float64 // [sequences, H]

	dparams []T // [sequences, Hkv] gradients of the features' parameters

	work float64 // arithmetic of all sequences

	noticed headtask.RowNotices
}

// newPass returns a pass forward. Release takes it back.
func (e *Engine[T]) newPass(c *contract.Call[T], out tensor.Heads[T], keep *contract.Saved[T]) *callPass[T] {
	p, _ := e.passes.Get().(*callPass[T])
	if p == nil {
		p = new(callPass[T])
	}
	*p = callPass[T]{e: e, c: c, seqs: e.Sequences(p.seqs[:0], &p.room, c), room: p.room, out: out, keep: keep, dscale: p.dscale[:0], dparams: p.dparams[:0]}
	return p
}

// Sequences appends to list the sequences of c as the mechanism sees them. A key
// that a lag leaves out is one beyond the key length of a shorter input.
func (e *Engine[T]) Sequences(list []SequenceTask, room *[]contract.Sequence, c *contract.Call[T]) []SequenceTask {
	list = AppendSequenceTasks(list, room, c)
	for i := range list {
		list[i].M = max(list[i].M-e.Spec.FarLag, 0)
		list[i].Offset -= e.Spec.FarLag
	}
	return list
}

// release keeps p for another call, without what it points at.
func (p *callPass[T]) release() {
	e := p.e
	*p = callPass[T]{seqs: p.seqs, room: p.room, dscale: p.dscale, dparams: p.dparams}
	e.passes.Put(p)
}

// run chooses the form of every sequence and does its key heads, in parallel.
func (p *callPass[T]) run() {
	p.e.measure(p.c, p.seqs)
	for i := range p.seqs {
		s := &p.seqs[i]
		s.Form = p.e.Forms().choose(p.c, s, p.back)
		s.Work = p.e.Forms().CountFLOPs(p.c, s)
		if p.back {
			s.Work *= 3
		}
		p.work += s.Work
	}
	par.Run(len(p.seqs)*p.c.K.H, 1, p.work, passTask[T]{p})
	if p.back {
		p.e.wideGrad(p.c, p.seqs, &p.g)
	}
}

// passTask is the pass as a task.
type passTask[T tensor.Float] struct{ *callPass[T] }

func (p *callPass[T]) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		p.head(&p.seqs[i/p.c.K.H], i%p.c.K.H)
	}
}

// head does key head kh of sequence s.
func (p *callPass[T]) head(s *SequenceTask, kh int) {
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
func (p *callPass[T]) countPriorKeys(s *SequenceTask, kh int) float64 {
	if st, is := p.c.Init.(*RecurrentState[T]); is && st != nil {
		h := st.Heads[s.Index*p.c.K.H+kh]
		return h.CountClosedKeys() + float64(h.CountOpenKeys(h.Count))
	}
	if p.seg != nil {
		return float64(p.seg.countPriorKeys(s.Index))
	}
	return 0
}

// addParamGrads adds the gradients of all tasks to the parameters'.
func (p *callPass[T]) addParamGrads() {
	t := kernel.Active[T]()
	from := p.dparams
	for len(from) > 0 {
		for _, x := range p.e.Spec.Features.Params().All() {
			t.Add(x.Grad, x.Grad, from[:len(x.Grad)])
			from = from[len(x.Grad):]
		}
	}
}

// paramGradsOf returns the parts of dparams that belong to task i.
func (p *callPass[T]) paramGradsOf(i int) (parts [][]T) {
	all := p.e.Spec.Features.Params().All()
	size := p.e.Spec.Features.Params().Size()
	from := p.dparams[i*size:][:size]
	for _, x := range all {
		parts = append(parts, from[:len(x.Data)])
		from = from[len(x.Data):]
	}
	return parts
}

// SumsOf appends to list the sums of a sequence in a range of heads.
func SumsOf[T tensor.Float](list []rowscale.Sums[T], s *headtask.BandSums[T], c *contract.Call[T], q *SequenceTask, r headtask.HeadRange) []rowscale.Sums[T] {
	for h := range r.N {
		at := (q.Batch*c.Q.H+r.Lo+h)*c.Q.N + q.Q0
		list = append(list, s.Slice(at, at+q.N))
	}
	return list
}
