package stream

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// syntheticSource generates tokens from a seed.
type syntheticSource struct {
	shape Shape
	seed  uint64
}

// NewSyntheticSource returns a source of n tokens for h heads of width d, which are generated from
// a seed. A token depends on the seed, the head and the position. Channels of q and k are uniform
// with mean 0 and standard deviation 1, in 256 steps. Values are
//
//	v_c = ½ + p + ½·k_c + ½·u_c
//
// with p = (n mod 2²⁰)/2²⁰ for position n, and u distributed like k. So outputs are near 1 and
// depend on the weights. NewSyntheticSource returns an error if n is negative or the shape is
// invalid.
func NewSyntheticSource(n int64, d, h int, seed uint64) (Source, error) {
	s := &syntheticSource{shape: Shape{B: 1, H: h, Hkv: h, N: n, M: n, D: d, Dv: d}, seed: seed}
	if n < 0 {
		return nil, fmt.Errorf("shape: N is %d, needs 0 or more", n)
	}
	if err := s.shape.validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// Shape returns the shape of the stream.
func (s *syntheticSource) Shape() Shape { return s.shape }

// HasDecay returns false.
func (s *syntheticSource) HasDecay() bool { return false }

// IsSequential returns false.
func (s *syntheticSource) IsSequential() bool { return false }

// IsComputed returns true: FillWindow generates tokens on the cores.
func (s *syntheticSource) IsComputed() bool { return true }

// Identity returns the seed.
func (s *syntheticSource) Identity() []comm.Field {
	return []comm.Field{{Name: "seed", Value: fmt.Sprint(s.seed)}}
}

// NewWindow returns a window with room for n tokens.
func (s *syntheticSource) NewWindow(n int, want Role) *Window {
	return NewWindow(s.shape, n, want, false)
}

const (
	workerTokens = 256 // tokens of a worker's task
	channelWork  = 40  // cost of a channel of a token, in operations
)

// FillWindow overwrites w with n tokens: queries from query on and keys from key on. Its error
// is always nil.
func (s *syntheticSource) FillWindow(w *Window, query, key int64, n int) (int, error) {
	parts := (n + workerTokens - 1) / workerTokens
	seed, ones := rng.New(s.seed), slices.Repeat([]tensor.Float{1}, s.shape.D)
	par.RunEach(s.shape.H*parts, float64(s.shape.H)*float64(n)*float64(s.shape.D)*channelWork, func(i int) {
		h, i0 := i/parts, i%parts*workerTokens
		i1 := min(i0+workerTokens, n)
		seedOf := func(array uint64) rng.Key { return seed.Fold(3*uint64(h) + array) } // 0: q, 1: k, 2: u
		if w.role&Queries != 0 {
			drawUniform(w.q.Head(0, h).Slice(i0, i1), deviation, seedOf(0), query+int64(i0))
		}
		if w.role&Keys == 0 {
			return
		}
		k, v := w.k.Head(0, h).Slice(i0, i1), w.v.Head(0, h).Slice(i0, i1)
		drawUniform(k, deviation, seedOf(1), key+int64(i0))
		drawUniform(v, 2*deviation, seedOf(2), key+int64(i0))
		kernels := kernel.Active[tensor.Float]()
		for j := range v.Rows {
			p := 0.5 + tensor.Float((key+int64(i0+j))&(1<<20-1))/(1<<20)
			row := v.Row(j)
			kernels.Axpy(row, 0.5, k.Row(j))
			kernels.Axpy(row, p, ones)
		}
	})
	w.SetTokens(n)
	return n, nil
}

// deviation is the standard deviation of the numbers -255, -253, …, 255 of kernel.Uniform,
// √((256²-1)/3).
const deviation = 147.80054127099805

// drawUniform overwrites rows [n, width] with tokens from position at on. Each channel is
// drawn from key, with standard deviation 1/by.
func drawUniform(rows tensor.Mat, by float64, key rng.Key, at int64) {
	uniform, factor := kernel.Active[tensor.Float]().Uniform, tensor.Float(1/by)
	const of = 16 // channels per number
	width := (rows.Cols + of - 1) / of * of
	if rows.Cols == width && rows.Stride == width {
		uniform(rows.Data[:rows.Rows*width], factor, key, uint64(at)*uint64(width/of))
		return
	}
	ar := arena.Acquire()
	defer ar.Release()
	all := arena.Take[tensor.Float](ar, rows.Rows*width)
	uniform(all, factor, key, uint64(at)*uint64(width/of))
	for j := range rows.Rows {
		copy(rows.Row(j), all[j*width:])
	}
}
