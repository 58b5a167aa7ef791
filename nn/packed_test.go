package nn

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// A frozen layer has the bits of the layer it was made from.
func TestPackedLinearHasTheBitsOfTheLayer(t *testing.T) {
	t.Run(check.Precision, testPackedLinear)
}

func testPackedLinear(t *testing.T) {
	s := &source{key: rng.New(4)}
	fill := func(p *param.Param) *param.Param {
		for i := range p.Data {
			p.Data[i] = float(s.normal())
		}
		return p
	}
	var set param.Set
	// The last is large enough for several threads.
	for _, size := range [][2]int{{5, 3}, {64, 401}, {70, 40}, {1100, 1000}} {
		out, in := size[0], size[1]
		set = param.Set{}
		l := Linear{W: fill(set.New("w", true, out, in)), B: fill(set.New("b", false, out))}
		for _, rows := range []int{1, 2, 3, GEMVRows, GEMVRows + 1, 30, rowTile + 9} {
			w := l.Freeze(rows)
			for _, acc := range []bool{false, true} {
				x, y := matrix(s, rows, in), matrix(s, rows, out)
				want := matrix(s, rows, out)
				for i := range rows {
					copy(want.Row(i), y.Row(i))
				}
				l.Forward(want, x, acc)
				w.Forward(y, x, acc)
				for i := range rows {
					for j, got := range y.Row(i) {
						if got != want.Row(i)[j] {
							t.Fatalf("[%d,%d], row %d of %d, acc %t: column %d is %v, not %v", out, in, i, rows, acc, j, got, want.Row(i)[j])
						}
					}
				}
			}
		}
	}
}

// Steps of many sequences whose states take a token head by head have the bits of those
// that do not, with any number of threads, and from a state of either.
func TestPackedAttentionByHeadsHasTheBitsOfTheLayer(t *testing.T) {
	defer par.SetThreads(par.Threads())
	linear, err := mechanism.New("linear", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &source{key: rng.New(5)}
	for _, d := range []int{16, 24, 32} {
		const h, tokens = 3, 5
		var set param.Set
		project := func(name string) Linear {
			l := Linear{W: set.New(name, true, h*d, h*d), B: set.New(name+"b", false, h*d)}
			for _, p := range []*param.Param{l.W, l.B} {
				for i := range p.Data {
					p.Data[i] = float(s.normal()) / 8
				}
			}
			return l
		}
		a := &Attention{Q: project("q"), K: project("k"), V: project("v"), O: project("o"), Mechanism: linear, H: h, Hkv: h, D: d}
		for _, batch := range []int{GEMVRows + 1, 29} {
			frozen := a.Freeze(batch).(*packedAttention)
			if want := d%16 == 0; frozen.byHead != want {
				t.Fatalf("d=%d: by heads %v", d, frozen.byHead)
			}
			var states []State
			for range 4 {
				state, err := a.NewState(batch)
				if err != nil {
					t.Fatal(err)
				}
				states = append(states, state)
			}
			traces := []Trace{a.NewTrace(), a.NewTrace(), a.NewTrace(), a.NewTrace()}
			for i := range tokens {
				x := matrix(s, batch, h*d)
				var want tensor.Mat
				for way, state := range states {
					y := tensor.Mat{Data: make([]float, batch*h*d), Rows: batch, Cols: h * d, Stride: h * d}
					step := Stepper(frozen)
					switch {
					case way == 0 || way == 2 && i%2 == 0:
						step = a
					case way == 3 && i == tokens-1:
						state = state.Clone()
					}
					par.SetThreads(1 + way%2)
					if err := step.Step(y, x, state, Scope{B: batch, Causal: true}, traces[way]); err != nil {
						t.Fatal(err)
					}
					if way == 0 {
						want = y
						continue
					}
					for j := range y.Data {
						if y.Data[j] != want.Data[j] {
							t.Fatalf("d=%d batch=%d token %d way %d: [%d] is %v, not %v", d, batch, i, way, j, y.Data[j], want.Data[j])
						}
					}
				}
			}
		}
	}
}
