package nn

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// A FirstLayerCache has the queries, keys and values of the layer, each within what the sums of
// both are rounded by.
func TestFirstLayerCacheProjectsWhatTheLayerDoes(t *testing.T) {
	t.Run(check.Precision, func(t *testing.T) { testFirstLayerCache(t, check.Pick(0x1p-24, 0x1p-53)) })
}

func testFirstLayerCache(t *testing.T, unit float64) {
	const vocab, width, h, hkv, d, places, batch = 9, 24, 4, 2, 6, 21, 3
	s := &source{key: rng.New(11)}
	var set param.Set
	draw := func(name string, mean float64, shape ...int) *param.Param {
		p := set.New(name, true, shape...)
		for i := range p.Data {
			p.Data[i] = float(mean + s.normal())
		}
		return p
	}
	m, err := mechanism.New("linear", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 << 4 {
		biased, normed, shifted, centred := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
		where := []string{"none", "learned", "sinusoidal"}[i>>4]
		name := fmt.Sprintf("bias %t, norm %t with mean %t and bias %t, positions %s", biased, normed, !centred, shifted, where)
		set = param.Set{}
		layer := func(name string, out int) Linear {
			l := Linear{W: draw(name, 0, out, width)}
			if biased && (name != "k" || !shifted) { // a layer without a bias of keys is among them
				l.B = draw(name+" bias", 0, out)
			}
			return l
		}
		a := &Attention{Q: layer("q", h*d), K: layer("k", hkv*d), V: layer("v", hkv*d), O: layer("o", h*d), Mechanism: m, H: h, Hkv: hkv, D: d}
		embed := &Embedding{W: draw("embed", 0.5, vocab, width)}
		var norm Norm
		if normed {
			layer := &layerNorm{Gain: draw("gain", 1, width), Eps: 1e-5}
			if shifted {
				layer.Bias = draw("shift", 0, width)
			}
			if norm = layer; !centred {
				norm = &RMSNorm{Gain: layer.Gain, Eps: layer.Eps}
			}
		}
		var position Position
		switch where {
		case "learned":
			position = &Learned{W: draw("position", -0.25, places, width)}
		case "sinusoidal":
			position = NewSinusoidal(width, 1, places/2)
		}
		l := NewFirstLayerCache(a, norm, embed, position)
		state, err := a.NewState(batch)
		if err != nil {
			t.Fatal(err)
		}
		var near PositionCache
		start := int64(0)
		for _, n := range []int{1, 2, 1, 14, 1, 2} { // up to the last place
			tokens := make([]int32, batch*n)
			for i := range tokens {
				tokens[i] = int32(rng.New(uint64(start)).Intn(uint64(i), vocab))
			}
			x, size := viewMatrix(make([]float, batch*n*width), batch*n, width), make([]float64, batch*n*width)
			embed.Forward(x, tokens)
			own := viewMatrix(make([]float, n*width), n, width)
			if position != nil {
				if err := position.Forward(own, 1, start); err != nil {
					t.Fatal(err)
				}
				if err := position.Forward(x, batch, start); err != nil {
					t.Fatal(err)
				}
			}
			stats := make([]float, 2*batch*n)
			for i := range batch * n {
				over := 1.0
				e, p := embed.W.Data[int(tokens[i])*width:][:width], own.Row(i%n)
				var meanE, meanP float64
				if norm != nil {
					row := viewMatrix(x.Row(i), 1, width)
					norm.Forward(row, row, stats[2*i:2*i+2])
					over = float64(stats[2*i+1])
					for j := range e {
						meanE, meanP = meanE+float64(e[j])/width, meanP+float64(p[j])/width
					}
				}
				var gain, shift []float
				if norm != nil {
					gain, shift, _ = norm.Affine()
				}
				for j := range e {
					size[i*width+j] = (math.Abs(float64(e[j])) + math.Abs(meanE) + math.Abs(float64(p[j])) + math.Abs(meanP)) * over
					if norm != nil {
						size[i*width+j] *= math.Abs(float64(gain[j]))
						if shift != nil {
							size[i*width+j] += math.Abs(float64(shift[j]))
						}
					}
				}
			}
			want := a.Project(x, Scope{B: batch, Causal: true}, a.NewTrace())
			tr := a.NewTrace().(*AttentionTrace)
			y := viewMatrix(make([]float, batch*n*width), batch*n, width)
			r := CachedRows{Tokens: tokens, Start: start, X: x, Stats: stats, Positions: &near}
			if err := l.Step(y, &r, state, Scope{B: batch, Causal: true}, tr, nil); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				what      string
				got, want tensor.Heads
				of        *Linear
			}{{"q", tr.call.Q, want.Q, &a.Q}, {"k", tr.call.K, want.K, &a.K}, {"v", tr.call.V, want.V, &a.V}} {
				for i := range batch * n {
					for j := range c.got.H * d {
						sum := 0.0
						for p := range width {
							sum += math.Abs(float64(c.of.W.Data[j*width+p])) * size[i*width+p]
						}
						if c.of.B != nil {
							sum += math.Abs(float64(c.of.B.Data[j]))
						}
						got, want := c.got.Head(i/n, j/d).Row(i % n)[j%d], c.want.Head(i/n, j/d).Row(i % n)[j%d]
						// Each is a sum of width products, of elements that were rounded a few
						// times on their way: when centred, scaled, and added.
						if off := math.Abs(float64(got) - float64(want)); !(off <= 2*(width+8)*unit*sum) {
							t.Fatalf("%s, %s of row %d at %d: %v, want %v, off by %.3g of the limit", name, c.what, i, start, got, want, off/(2*(width+8)*unit*sum))
						}
					}
				}
			}
			start += int64(n)
		}
		if start != places {
			t.Fatalf("%d tokens for %d places", start, places)
		}
	}
	big := &Embedding{W: draw("big", 0, maxCacheSize/((h+2*hkv)*d)+1, width)}
	a := &Attention{Q: Linear{W: draw("q of that", 0, h*d, width)}, H: h, Hkv: hkv, D: d}
	if NewFirstLayerCache(a, nil, big, nil) != nil {
		t.Error("a table of more elements than there may be")
	}
}
