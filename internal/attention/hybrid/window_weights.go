package hybrid

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/engine"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/attention/rowstats"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Rows of A: with one denominator the weights of both parts over it, and of
// separate terms the sum of both matrices, the window's times γ, whose rows sum
// to 1 + γ. Outputs are their products with the values either way.

func (w *hybrid) Weights(dst tensor.Mat, c *attention.Call, b, h, i0, i1 int) error {
	if err := w.Check(c); err != nil {
		return err
	}
	if err := c.CheckRows(dst, b, h, i0, i1); err != nil {
		return err
	}
	scratch.ClearRows(dst, 0, dst.Rows)
	for _, s := range engine.SequenceTasks(c) {
		lo, hi := max(i0, s.Q0), min(i1, s.Q0+s.N)
		if s.Batch != b || lo >= hi {
			continue
		}
		ar := arena.Acquire()
		x := w.matrix(c, &s, h, ar)
		rows := dst.Slice(lo-i0, hi-i0)
		rows.Data, rows.Cols = rows.Data[s.K0:], s.M
		x.rows(rows, lo-s.Q0)
		x.release()
		ar.Release()
	}
	return nil
}

// windowMatrix gives rows of A of query head h of a sequence.
type windowMatrix struct {
	w            *hybrid
	window, tail *headtask.Task
	g, h         int
	ages         headtask.BandAges
}

func (w *hybrid) matrix(c *attention.Call, s *engine.SequenceTask, h int, ar *arena.Arena) *windowMatrix {
	group := c.Q.H / c.K.H
	x := &windowMatrix{w: w, window: w.nearOf(c.Causal).NewTask(c, s, h/group, ar), g: h % group, h: h}
	if c.Causal {
		s = &w.tail.Sequences(nil, new([]attention.Sequence), c)[s.Index]
	}
	x.tail = w.tail.NewTask(c, s, h/group, ar)
	x.ages = x.window.BandAges(0)
	return x
}

func (x *windowMatrix) release() {
	x.w.nearOf(x.tail.Causal).Release(x.window)
	x.w.tail.Release(x.tail)
}

// rows sets the rows of dst to the weights of queries from i0 on, and returns the parts
// of their denominators where there is one.
func (x *windowMatrix) rows(dst tensor.Mat, i0 int) []joinedSums {
	near, far := x.window, x.tail
	mark := near.Arena.Mark()
	defer near.Arena.Reset(mark)
	tail := dst
	tail.Cols = far.M
	if !far.Causal && x.w.oneDenominator() {
		x.farWeights(tail, i0)
	} else {
		far.DirectWeights(tail, x.g, i0, i0+dst.Rows)
	}
	sums := make([]joinedSums, dst.Rows)
	size := headtask.QueryBlock
	for r := 0; r < dst.Rows; r += size {
		x.joinBand(dst.Slice(r, min(r+size, dst.Rows)), i0+r, sums[r:])
	}
	return sums
}

// joinBand adds the window's part to a few rows that hold the tail's.
func (x *windowMatrix) joinBand(dst tensor.Mat, i0 int, sums []joinedSums) {
	u, n := x.window, dst.Rows
	mark := u.Arena.Mark()
	defer u.Arena.Reset(mark)
	b, _, nk := u.BandRange(i0, n)
	u.PrepareQ(b.Queries, b.LDQ, x.g, i0, i0+n)
	weights, sum := u.TakeScratch(nk), rowscale.TakeSums(u.Arena, 1)
	gamma := x.w.logGamma(x.h)
	for r := range n {
		i, row := i0+r, dst.Row(r)
		band, ahead := row[u.Lowest(i):u.CountVisible(i)], row[u.CountVisible(i):]
		window := weights[:len(band)]
		b.Weights(r, window, sum)
		var over float
		if sum.Sum[0] != 0 {
			over = 1 / sum.Sum[0]
		}
		if !x.w.oneDenominator() {
			u.Table.Axpy(band, over*float(math.Exp(gamma)), window)
			continue
		}
		tail := row[:u.Lowest(i)]
		sums[r] = x.w.sums(float64(u.Table.Sum(tail)+u.Table.Sum(ahead)), gamma+float64(sum.Log(0, math.Log2E)), x.ages, i)
		if p := &sums[r]; p.isZero() {
			clear(row)
		} else {
			scaleTail(u.Table, tail, p, tail)
			scaleTail(u.Table, ahead, p, ahead)
			_, share := p.factors()
			u.Table.Scale(band, over*float(share), window)
		}
	}
}

// Diagnose describes the weights of each query head. With one denominator it diagnoses rows of
// the attention matrix, and MinDen is the smallest logarithm of a denominator's absolute value.
// With separate terms, the entropy and the condition come from rows of the attention matrix,
// the condition divided by 1 + γ, and all else comes from the tail. It returns the errors of
// Weights, and an error for a call with a state.
func (w *hybrid) Diagnose(c *attention.Call) ([]attention.Diagnosis, error) {
	if err := w.Check(c); err != nil {
		return nil, err
	}
	if c.HasState() {
		return nil, engine.ErrSegmentedDiagnosis
	}
	seqs := engine.SequenceTasks(c)
	var pieces []engine.RowStretch
	for i := range seqs {
		s := &seqs[i]
		longest := w.tail.LongestKeys(c, s, c.Mask(&s.Sequence))
		for h := range c.Q.H {
			for i0 := 0; i0 < s.N; i0 += engine.DiagnosedRows {
				pieces = append(pieces, engine.RowStretch{Sequence: s, Longest: longest, Head: h, I0: i0, I1: min(i0+engine.DiagnosedRows, s.N)})
			}
		}
	}
	par.RunEach(len(pieces), w.Plan(c.Shape()).FLOPs, func(i int) { w.diagnose(c, &pieces[i]) })
	list := make([]attention.Diagnosis, c.Q.B*c.Q.H)
	for i := range pieces {
		p := &pieces[i]
		list[p.Sequence.Batch*c.Q.H+p.Head].Merge(&p.Found, p.Sequence.Q0, true)
	}
	for i := range list {
		if n := float64(list[i].Rows); n > 0 {
			list[i].Entropy /= n
			list[i].Condition /= n
		}
	}
	if w.oneDenominator() {
		return list, nil
	}
	tail, err := w.tail.Diagnose(c)
	for i := range tail {
		d, a := &tail[i], &list[i]
		d.Entropy, d.MinEntropy, d.MinEntropyAt = a.Entropy, a.MinEntropy, a.MinEntropyAt
		d.Condition, d.MaxCondition, d.MaxConditionAt = a.Condition, a.MaxCondition, a.MaxConditionAt
	}
	return tail, err
}

// diagnose looks at the rows of a piece, a few of them at a time.
func (w *hybrid) diagnose(c *attention.Call, p *engine.RowStretch) {
	ar := arena.Acquire()
	defer ar.Release()
	x := w.matrix(c, p.Sequence, p.Head, ar)
	defer x.release()
	left, m := x.window.BandLeft(headtask.PriorKeys{}), x.window.M
	rows := tensor.Mat{Data: arena.Take[float](ar, headtask.PanelRows*m), Cols: m, Stride: m}
	whole := 1.0
	if !w.oneDenominator() {
		whole += math.Exp(w.logGamma(p.Head))
	}
	for i0 := p.I0; i0 < p.I1; i0 += headtask.PanelRows {
		rows.Rows = min(headtask.PanelRows, p.I1-i0)
		clear(rows.Data)
		sums := x.rows(rows, i0)
		for r := range rows.Rows {
			i := i0 + r
			if !x.window.SeesAnyKey(i) && !x.tail.SeesAnyKey(i) {
				p.Found.UnseenCount++
				continue
			}
			var row rowstats.Row
			for _, y := range rows.Row(r) {
				row.AddWeight(float64(y), 1)
			}
			one := attention.Diagnosis{Rows: 1, Entropy: row.Entropy(), Condition: row.Size / whole}
			if w.oneDenominator() {
				one.MinDen = sums[r].log()
				reach := w.tail.BoundScore(c, p.Sequence, p.Longest, p.Head, i)
				isPositive := w.tail.Spec.IsPositive(headtask.ScoreGain(c.Drop))
				if !w.tail.IsWellConditioned(c) && w.isIllConditioned(&sums[r], left[i], reach, isPositive) {
					one.WeakCount = 1
				}
			}
			one.MinEntropy, one.MaxCondition = one.Entropy, one.Condition
			p.Found.Merge(&one, i, true)
		}
	}
}
