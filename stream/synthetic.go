package stream

import (
	"fmt"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Synthetic is a Source of tokens made from a seed: each is a function of the seed,
// its head and its position. Channels of q and k are uniform with mean 0 and
// deviation 1, to a byte. Values are
//
//	v_c = ½ + p + ½·k_c + ½·u_c
//
// with the position p = (n mod 2²⁰)/2²⁰ and u like k, so that outputs are around 1
// and depend on which keys weigh.
type Synthetic[T tensor.Float] struct {
	shape   Shape
	seed    uint64
	q, k, u []rng.Key // of each head
	levels  [256]T
}

// NewSynthetic returns n tokens of h heads of width d.
func NewSynthetic[T tensor.Float](n int64, d, h int, seed uint64) (*Synthetic[T], error) {
	s := &Synthetic[T]{shape: Shape{B: 1, H: h, Hkv: h, N: n, M: n, D: d, Dv: d}, seed: seed, levels: levelsOf[T]()}
	if n < 0 {
		return nil, fmt.Errorf("shape: N is %d, needs 0 or more", n)
	}
	if err := s.shape.check(); err != nil {
		return nil, err
	}
	key := rng.New(seed)
	for i := range uint64(h) {
		s.q, s.k, s.u = append(s.q, key.Fold(3*i)), append(s.k, key.Fold(3*i+1)), append(s.u, key.Fold(3*i+2))
	}
	return s, nil
}

func (s *Synthetic[T]) Shape() Shape     { return s.shape }
func (s *Synthetic[T]) Decays() bool     { return false }
func (s *Synthetic[T]) Sequential() bool { return false }
func (s *Synthetic[T]) Identity() []Field {
	return []Field{{"seed", fmt.Sprint(s.seed)}}
}

func (s *Synthetic[T]) Room(n int, want Want) *Window[T] {
	w := &Window[T]{}
	if want&Queries != 0 {
		w.q = tensor.NewHeads[T](1, s.shape.H, n, s.shape.D)
	}
	if want&Keys != 0 {
		w.k, w.v = tensor.NewHeads[T](1, s.shape.H, n, s.shape.D), tensor.NewHeads[T](1, s.shape.H, n, s.shape.D)
	}
	return w
}

const (
	someTokens = 256 // that a worker makes at a time
	tokenWork  = 200 // operations that a channel of a token is worth
)

func (s *Synthetic[T]) Fill(w *Window[T], query, key int64, n int) (int, error) {
	parts := (n + someTokens - 1) / someTokens
	par.Do(s.shape.H*parts, float64(s.shape.H)*float64(n)*float64(s.shape.D)*tokenWork/8, func(i int) {
		h, i0 := i/parts, i%parts*someTokens
		i1 := min(i0+someTokens, n)
		if w.want&Queries != 0 {
			s.draw(w.q.At(0, h).Slice(i0, i1), s.q[h], query+int64(i0))
		}
		if w.want&Keys != 0 {
			k, v := w.k.At(0, h).Slice(i0, i1), w.v.At(0, h).Slice(i0, i1)
			s.draw(k, s.k[h], key+int64(i0))
			s.draw(v, s.u[h], key+int64(i0))
			for j := range v.Rows {
				p := 0.5 + T((key+int64(i0+j))&(1<<20-1))/(1<<20)
				kr, vr := k.Row(j), v.Row(j)
				for c := range vr {
					vr[c] = p + (kr[c]+vr[c])/2
				}
			}
		}
	})
	w.take(n, w.want)
	return n, nil
}

// levelsOf returns the numbers that bytes stand for.
func levelsOf[T tensor.Float]() (x [256]T) {
	for i := range x {
		// The deviation of 0 … 255 is √((256²-1)/12).
		x[i] = T((float64(i) - 127.5) / 73.90027063550903)
	}
	return x
}

// draw sets rows to tokens from position at on: 16 channels for each number of key.
func (s *Synthetic[T]) draw(rows tensor.Mat[T], key rng.Key, at int64) {
	levels := &s.levels
	blocks := uint64(rows.Cols+15) / 16
	for j := range rows.Rows {
		row := rows.Row(j)
		i := uint64(at+int64(j)) * blocks
		for ; len(row) >= 16; i++ {
			x := (*[16]T)(row)
			for c, w := range key.Uint32s(i) {
				y := x[4*c&12:][:4]
				y[0], y[1], y[2], y[3] = levels[w&0xff], levels[w>>8&0xff], levels[w>>16&0xff], levels[w>>24]
			}
			row = row[16:]
		}
		if len(row) > 0 {
			words := key.Uint32s(i)
			for c := range row {
				row[c] = levels[words[c/4]>>(c%4*8)&0xff]
			}
		}
	}
}
