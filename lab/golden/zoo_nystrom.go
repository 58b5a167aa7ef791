package golden

import (
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// couples is why some files of nystrom are not compared.
const couples = "its pseudo-inverse starts from a number of the whole batch, so that rows depend on each other"

var nystromGroup = zooGroup{name: "nystrom", needs: []string{"landmarks", "iters"}, arrays: []string{"init_global", "mask", "conv", "d_conv", "pinv"},
	read: func(r *reader, p *problem) string {
		if r.f.hasArray("init_global") && r.truth("init_global") {
			return couples
		}
		landmarks, iterations := r.integer("landmarks"), r.integer("iters")
		set := map[string]string{"landmarks": strconv.Itoa(landmarks), "iterations": strconv.Itoa(iterations), "form": "code"}
		width := 0
		if r.f.hasArray("conv") {
			if shape := r.shape("conv"); len(shape) == 2 {
				width = shape[1]
			}
			set["conv"] = strconv.Itoa(width)
			p.parameters(r, "conv")
		}
		p.mechanism, p.options = "nystrom", mechanism.Options{Heads: p.call.Q.H, Set: set}
		p.headMatrix = oracle.NewNystrom(landmarks, iterations, p.numbers["conv"], width, true)
		p.forms = p.wholeForms()
		if r.f.hasArray("mask") {
			for _, x := range r.floats("mask") {
				p.call.KeyMask = append(p.call.KeyMask, x != 0)
			}
			if r.err == nil && slices.Contains(p.call.KeyMask, false) {
				p.maskQueries()
			}
		}
		return ""
	},
	cases: func(*file, relative) (*problem, string) { return nil, couples },
}

// maskQueries makes zeros of the queries of tokens whose keys are masked, as the
// file has it, and of their gradients.
func (p *problem) maskQueries() {
	clearMasked(p.call.Q, p.call.KeyMask)
	p.compute = func() (map[string][]float64, error) {
		return maskedResults(p)
	}
}

func maskedResults(p *problem) (map[string][]float64, error) {
	m, c, err := prepareCall(p)
	if err != nil {
		return nil, err
	}
	got, err := computeResults(m, c, convertHeads(p.do))
	if err != nil {
		return nil, err
	}
	byArray := map[string][]float64{}
	for _, e := range p.want {
		byArray[e.array] = widenRows(got[e.what])
	}
	if dq := byArray["d_q"]; dq != nil {
		q := p.call.Q
		clearMasked(oracle.HeadsOf(dq, q.B, q.H, q.N, q.D), p.call.KeyMask)
	}
	return byArray, nil
}

// clearMasked sets the rows of tokens that do not exist to zero.
func clearMasked(x oracle.Heads, exist []bool) {
	for b := range x.B {
		for h := range x.H {
			for n := range x.N {
				if !exist[b*x.N+n] {
					clear(x.Head(b, h).Row(n))
				}
			}
		}
	}
}

func widenRows(x []float) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
