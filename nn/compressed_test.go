package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

func (l *Linear) clone() Linear {
	w := *l.W
	w.Data = slices.Clone(w.Data)
	return Linear{W: &w, B: l.B}
}

// rounded rounds weights to 16 bits.
func (l *Linear) rounded() Linear {
	c := l.clone()
	for i, x := range c.W.Data {
		c.W.Data[i] = float(kernel.WidenHalf(kernel.Half(float32(x))))
	}
	return c
}

func randomParam(r *rand.Rand, name string, shape ...int) *param.Param {
	n := 1
	for _, s := range shape {
		n *= s
	}
	p := &param.Param{Name: name, Shape: shape, Data: make([]float, n), Grad: make([]float, n)}
	for i := range p.Data {
		p.Data[i] = float(r.NormFloat64())
	}
	return p
}

func randomLinear(r *rand.Rand, out, in int) Linear {
	return Linear{W: randomParam(r, "w", out, in), B: randomParam(r, "b", out)}
}

func randomMat(r *rand.Rand, rows, cols int) tensor.Mat {
	m := viewMatrix(make([]float, rows*cols), rows, cols)
	for i := range m.Data {
		m.Data[i] = float(r.NormFloat64())
	}
	return m
}

func BenchmarkCompressed(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, rows := range []int{1, 12, 128, 512} {
		for p := range Int8 + 1 {
			up, down := randomLinear(r, 1536, 384), randomLinear(r, 384, 1536)
			m := &mlp{UpProj: up, DownProj: down, Act: GELU}
			for _, l := range []*Linear{&m.UpProj, &m.DownProj} {
				if err := l.Compress(p); err != nil {
					b.Fatal(err)
				}
			}
			m.PackWeights()
			x, y, tr := randomMat(r, rows, 384), randomMat(r, rows, 384), m.NewTrace()
			b.Run(fmt.Sprintf("%v/%d", p, rows), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := m.Forward(y, x, x, Scope{}, tr, false); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
