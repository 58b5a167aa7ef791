package nn

import (
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// FirstLayerCache computes steps of the first self-attention layer of a model from tables.
// This layer projects rows e + p of a token and its position, normalised or not, so that its
// queries, keys and values are
//
//	(A·(e-ē) + A·(p-p̄))/σ + c
//
// with A the weights times the gain of the norm, c their bias plus their product with the
// bias of the norm, ē and p̄ the means of the two rows, 0 for a norm that does not centre,
// and 1/σ the factor of the norm. The first term is read from a table of tokens (Graef
// 2024, arXiv 2402.13388, which has no positions), and the second is computed once for all
// sequences. Rounding errors are (|e|+|p|)/|e+p| times those of the layer. The weights must
// not change while the cache is in use.
type FirstLayerCache struct {
	layer         *Attention
	weights       Linear         // [out,width]: A, of queries, keys and values
	scaled        bool           // there is a norm
	centred       bool           // rows lose their mean in the norm
	tokens        []tensor.Float // [vocab,out]
	bias          []tensor.Float // [out]: c; nil: none
	position      Position       // nil: none
	positionCount int64          // that the model has learned; 0: any number
}

// maxCacheSize bounds the elements of the table of a FirstLayerCache.
const maxCacheSize = 1 << 20

// NewFirstLayerCache returns the cache of layer a, whose input is the sum of embed and
// position after norm. norm and position may be nil. It returns nil if the table would have
// more than 2²⁰ elements.
func NewFirstLayerCache(a *Attention, norm Norm, embed *Embedding, position Position) *FirstLayerCache {
	width, out, vocab := a.Q.W.Shape[1], (a.H+2*a.Hkv)*a.D, embed.W.Shape[0]
	if vocab*out > maxCacheSize {
		return nil
	}
	l := &FirstLayerCache{layer: a, position: position}
	var gain, shift []float
	if norm != nil {
		l.scaled = true
		gain, shift, l.centred = norm.Affine()
	}
	if p, learned := position.(*Learned); learned {
		l.positionCount = int64(p.W.Shape[0] - p.Offset)
	}
	l.weights.W = &param.Param{Shape: []int{out, width}, Data: make([]float, 0, out*width)}
	biased := a.Q.B != nil || a.K.B != nil || a.V.B != nil
	for _, p := range [...]*Linear{&a.Q, &a.K, &a.V} {
		l.weights.W.Data = append(l.weights.W.Data, p.W.Data...)
		switch {
		case shift != nil:
			y := viewMatrix(make([]float, p.W.Shape[0]), 1, p.W.Shape[0])
			p.Forward(y, viewMatrix(shift, 1, width), false)
			l.bias = append(l.bias, y.Data...)
		case p.B != nil:
			l.bias = append(l.bias, p.B.Data...)
		case biased:
			l.bias = append(l.bias, make([]float, p.W.Shape[0])...)
		}
	}
	if norm != nil {
		k := kernel.Active[float]()
		for i := range out {
			row := l.weights.W.Data[i*width:][:width]
			k.Mul(row, row, gain)
		}
	}
	l.tokens = make([]float, vocab*out)
	l.projectRows(viewMatrix(l.tokens, vocab, out), viewMatrix(slices.Clone(embed.W.Data), vocab, width))
	return l
}

// projectRows sets y [rows,out] to A·(x-x̄) for rows x [rows,width], which it overwrites.
func (l *FirstLayerCache) projectRows(y, x tensor.Mat) {
	for i := 0; i < x.Rows && l.centred; i++ {
		row, sum := x.Row(i), 0.0
		for _, e := range row {
			sum += float64(e)
		}
		mean := float(sum / float64(len(row)))
		for j := range row {
			row[j] -= mean
		}
	}
	l.weights.Forward(y, x, false)
}

// PositionCache holds the terms A·(p-p̄) of a FirstLayerCache for the next positions.
type PositionCache struct {
	rows, inputs []tensor.Float
	start, end   int64
}

// Bytes returns the memory of the cache.
func (p *PositionCache) Bytes() int64 {
	return bytesOf(p.rows[:cap(p.rows)]) + bytesOf(p.inputs[:cap(p.inputs)])
}

// positionsAhead is the number of positions that are projected at a time.
const positionsAhead = 16

// termsFrom returns the terms [n,out] of n positions from start on.
func (p *PositionCache) termsFrom(l *FirstLayerCache, start int64, n int) (tensor.Mat, error) {
	out := l.weights.W.Shape[0]
	if start < p.start || start+int64(n) > p.end {
		count := max(n, positionsAhead)
		if l.positionCount > 0 {
			count = max(n, int(min(int64(count), l.positionCount-start)))
		}
		from := resizeMatrix(&p.inputs, count, l.weights.W.Shape[1])
		clear(from.Data)
		p.start, p.end = 0, 0
		if err := l.position.Forward(from, 1, start); err != nil {
			return from, err
		}
		l.projectRows(resizeMatrix(&p.rows, count, out), from)
		p.start, p.end = start, start+int64(count)
	}
	return viewMatrix(p.rows[int(start-p.start)*out:], n, out), nil
}

// CachedRows holds the rows of a step of a FirstLayerCache.
type CachedRows struct {
	Tokens    []int32        // [B·N]
	Start     int64          // position of the first token of each sequence
	X         tensor.Mat     // [B·N,width] after the norm
	Stats     []tensor.Float // [2·B·N] of the norm
	Positions *PositionCache // of the sequences
}

// Step adds to y [B·N,width] the self-attention of rows r after the tokens of state.
// frozen is the packed layer for this number of rows, or nil. It returns an error if a
// position is beyond the learned table or the state refuses the call.
func (l *FirstLayerCache) Step(y tensor.Mat, r *CachedRows, state State, s Scope, trace Trace, frozen Stepper) error {
	a, tr := l.layer, trace.(*AttentionTrace)
	p := StepPart{B: s.B, End: r.X.Rows, Position: r.Start, Positions: r.Positions, Rope: s.Rope}
	if err := l.setRows(r, &p, tr); err != nil {
		return err
	}
	tr.call = l.partCall(tr, &p, s)
	a.setDecay(tr, r.X, s.B, packedGate(frozen))
	o := resizeMatrix(&tr.o, r.X.Rows, a.H*a.D)
	if err := state.(attentionState).State.Step(a.viewQueries(tr.o, s.B, p.countTokens()), &tr.call); err != nil {
		return explainDecay(err, &tr.call)
	}
	l.addOutputs(y, a.normaliseOutputs(o, tr, false), frozen)
	return nil
}

// StepParts computes Step for every part that has no error, at the positions of the part. An
// error of Step is set in its part. y and r hold the rows of all parts.
func (l *FirstLayerCache) StepParts(y tensor.Mat, r *CachedRows, parts []StepPart, s Scope, trace Trace, frozen Stepper) {
	a, tr := l.layer, trace.(*AttentionTrace)
	resizeMatrix(&tr.q, r.X.Rows, l.weights.W.Shape[0])
	a.setDecay(tr, r.X, 1, packedGate(frozen))
	calls := tr.partCalls(len(parts))
	for i := range parts {
		if p := &parts[i]; p.Err == nil {
			p.Err = l.setRows(r, p, tr)
			calls[i] = l.partCall(tr, p, s)
			if a.Decay != nil {
				calls[i].LogG = a.partRates(tr, p)
			}
		}
	}
	o := resizeMatrix(&tr.o, r.X.Rows, a.H*a.D)
	a.stepStates(parts, tr)
	l.addOutputs(y, a.normaliseOutputs(o, tr, false), frozen)
}

// setRows sets the queries, keys and values of a part, side by side in the rows of tr.q.
func (l *FirstLayerCache) setRows(r *CachedRows, p *StepPart, tr *AttentionTrace) error {
	out, n := l.weights.W.Shape[0], p.countTokens()
	all := resizeMatrix(&tr.q, r.X.Rows, out)
	f := cachedForward{l: l, y: p.Rows(all), tokens: r.Tokens[p.Start:p.End], stats: r.Stats[2*p.Start:], n: n}
	if l.position != nil {
		var err error
		if f.positionTerms, err = p.Positions.termsFrom(l, p.Position, n); err != nil {
			return err
		}
	}
	if rows := f.y.Rows; rows <= normRows {
		f.RunRange(0, rows)
	} else {
		par.Run(rows, normRows, 3*moveWork*float64(rows)*float64(out), f)
	}
	return nil
}

// partCall returns the call of a part without its decay, from the rows of tr.q.
func (l *FirstLayerCache) partCall(tr *AttentionTrace, p *StepPart, s Scope) attention.Call {
	a, n, out := l.layer, p.countTokens(), l.weights.W.Shape[0]
	wide, narrow, rows := a.H*a.D, a.Hkv*a.D, tr.q[p.Start*out:p.End*out]
	return attention.Call{
		Q: tensor.Split(rows, p.B, n, out, 0, a.H, a.D),
		K: tensor.Split(rows, p.B, n, out, wide, a.Hkv, a.D), V: tensor.Split(rows, p.B, n, out, wide+narrow, a.Hkv, a.D),
		Causal: s.Causal, Rope: p.Rope,
	}
}

// addOutputs adds to y the projection of the outputs o [rows,H·D] of the mechanism.
func (l *FirstLayerCache) addOutputs(y, o tensor.Mat, frozen Stepper) {
	if packed, is := frozen.(*packedAttention); is {
		packed.o.Forward(y, o, true)
	} else {
		l.layer.O.Forward(y, o, true)
	}
}

// packedGate returns the gate of a packed attention; nil for another stepper.
func packedGate(frozen Stepper) *PackedLinear {
	if packed, is := frozen.(*packedAttention); is {
		return packed.gate
	}
	return nil
}

// StateMemory returns the memory of a state that Step reads, for Scope.Next of the step before.
// The layer itself has no product before this read that could prefetch it.
func (l *FirstLayerCache) StateMemory(state State) []tensor.Float {
	return attention.StepMemory(state.(attentionState).State)
}

// cachedForward sets rows of queries, keys and values.
type cachedForward struct {
	l             *FirstLayerCache
	y             tensor.Mat
	tokens        []int32    // [rows]
	stats         []float    // [2·rows]
	positionTerms tensor.Mat // [n,out]; no rows: there are none
	n             int
}

func (f *cachedForward) RunRange(i0, i1 int) {
	t, l := kernel.Active[float](), f.l
	for i := i0; i < i1; i++ {
		y := f.y.Row(i)
		row := l.tokens[int(f.tokens[i])*f.y.Cols:][:f.y.Cols]
		if f.positionTerms.Rows > 0 {
			t.Add(y, row, f.positionTerms.Row(i%f.n))
			row = y
		}
		switch {
		case l.scaled:
			t.Scale(y, f.stats[2*i+1], row)
		case f.positionTerms.Rows == 0:
			copy(y, row)
		}
		if l.bias != nil {
			t.Add(y, y, l.bias)
		}
	}
}
