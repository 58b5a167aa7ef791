package engine

import (
	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// Normalisations with statistics over all tokens of a sequence are affine maps of each
// row, once the statistics are known. They are applied before the engines start. Their
// gradient is completed after the engines end, so the engines need not know them.

// rowsOf are the queries or keys of one head of a sequence, and their
// gradients.
type rowsOf[T tensor.Float] struct {
	x, dx tensor.Mat[T]
	mask  []bool // tokens that exist; nil: all
}

func (r *rowsOf[T]) exists(t int) bool { return r.mask == nil || r.mask[t] }

// sides calls f, in parallel, for the queries of each head of each sequence and
// then for the keys of each: i is their place in the sequence's statistics.
func (e *Engine[T]) sides(c *contract.Call[T], seqs []SequenceTask, g *contract.Grads[T], f func(s *SequenceTask, i int, r rowsOf[T])) {
	heads := c.Q.H + c.K.H
	work := 8 * float64(c.Q.D*c.Q.B) * (float64(c.Q.N)*float64(c.Q.H) + float64(c.K.N)*float64(c.K.H))
	par.RunEach(len(seqs)*heads, work, func(at int) {
		s, i := &seqs[at/heads], at%heads
		var r rowsOf[T]
		if i < c.Q.H {
			r.x = c.Q.At(s.Batch, i).Slice(s.Q0, s.Q0+s.N)
			if g != nil {
				r.dx = g.DQ.At(s.Batch, i).Slice(s.Q0, s.Q0+s.N)
			}
		} else {
			r.x = c.K.At(s.Batch, i-c.Q.H).Slice(s.K0, s.K0+s.M)
			if g != nil {
				r.dx = g.DK.At(s.Batch, i-c.Q.H).Slice(s.K0, s.K0+s.M)
			}
			if c.KeyMask != nil {
				r.mask = c.KeyMask[s.Batch*c.K.N+s.K0:][:s.M]
			}
		}
		f(s, i, r)
	})
}

// measure takes the statistics of sequences, where the normalisation has any.
func (e *Engine[T]) measure(c *contract.Call[T], seqs []SequenceTask) {
	norm := e.Spec.Norm
	if !spec.NeedsAllTokens(norm) {
		return
	}
	for i := range seqs {
		seqs[i].stats = make([]headtask.NormStats, c.Q.H+c.K.H)
	}
	if norm == spec.TokenCentred || norm == spec.GlobalCentred {
		e.sides(c, seqs, nil, func(s *SequenceTask, i int, r rowsOf[T]) { s.stats[i].Mean = r.means(r.x) })
	}
	for i := range seqs {
		if st := seqs[i].stats; norm == spec.GlobalCentred {
			shareMean(st[:c.Q.H])
			shareMean(st[c.Q.H:])
		}
	}
	e.sides(c, seqs, nil, func(s *SequenceTask, i int, r rowsOf[T]) {
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
func (r *rowsOf[T]) means(x tensor.Mat[T]) []float64 {
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

// wideGrad adds to gradients their part through the statistics. With x̃ the centred
// rows, x̂ = x̃·factor and gradients dx̃ that contain the factor, the greatest norm M
// has
//
//	dM = -power·Σ_t dx̃_t·x̃_t / M,
//
// which is added to the token with that norm along x̃/M. The mean that is subtracted
// from rows is subtracted from gradients too.
func (e *Engine[T]) wideGrad(c *contract.Call[T], seqs []SequenceTask, g *contract.Grads[T]) {
	norm := e.Spec.Norm
	if !spec.NeedsAllTokens(norm) {
		return
	}
	heads := c.Q.H + c.K.H
	means := make([]headtask.NormStats, len(seqs)*heads) // of the gradients
	e.sides(c, seqs, g, func(s *SequenceTask, i int, r rowsOf[T]) {
		st, row := &s.stats[i], make([]float64, c.Q.D)
		if _, power := spec.InvertLength(norm, st.Length); power > 0 {
			var along float64
			for t := range r.x.Rows {
				if r.exists(t) {
					headtask.CentreRow(row, r.x.Row(t), norm, st)
					for c, y := range r.dx.Row(t) {
						along += float64(y) * row[c]
					}
				}
			}
			along *= float64(power) / (st.Length * st.Length)
			headtask.CentreRow(row, r.x.Row(st.Place), norm, st)
			for c, y := range row {
				r.dx.Row(st.Place)[c] -= T(along * y)
			}
		}
		switch norm {
		case spec.ChannelCentred:
			r.subtract(row, norm, &headtask.NormStats{})
		case spec.TokenCentred:
			r.subtract(row, norm, &headtask.NormStats{Mean: r.means(r.dx)})
		case spec.GlobalCentred:
			means[s.Index*heads+i].Mean = r.means(r.dx)
		}
	})
	if norm != spec.GlobalCentred {
		return
	}
	for i := range seqs {
		m := means[i*heads:][:heads]
		shareMean(m[:c.Q.H])
		shareMean(m[c.Q.H:])
	}
	e.sides(c, seqs, g, func(s *SequenceTask, i int, r rowsOf[T]) {
		r.subtract(make([]float64, c.Q.D), norm, &means[s.Index*heads+i])
	})
}

// subtract centres the gradients of tokens that exist.
func (r *rowsOf[T]) subtract(row []float64, norm spec.Norm, s *headtask.NormStats) {
	for t := range r.dx.Rows {
		if !r.exists(t) {
			continue
		}
		dx := r.dx.Row(t)
		headtask.CentreRow(row, dx, norm, s)
		for c, y := range row {
			dx[c] = T(y)
		}
	}
}
