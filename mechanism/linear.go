package mechanism

import (
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

var linear = Row{
	Name:   "linear",
	Doc:    "φ(q)·φ(k) with φ = elu + 1, or another feature map: linear attention",
	Source: "Katharopoulos et al. 2020, arXiv 2006.16236, eq. 4-7; squared-relu: So et al. 2021, arXiv 2109.08668",
	Traits: "weights never negative; direct and linear forms; state of fixed size",
	Linear: true,
	Settings: []Setting{
		{"eps", "1e-6", "added to the sum of the weights, which falls short of 1 where they are tiny"},
		{"map", "elu+1", "φ of each number: elu+1, relu or squared-relu; or of a row, learned for each head: hedgehog"},
		windowSetting, joinSetting, gammaSetting,
	},
	Params: []Param{
		{"map.q.weight", "(H, D, D)", "rows w of the features of queries, where the map is hedgehog"},
		{"map.q.bias", "(H, D)", "numbers b of them"},
		{"map.k.weight", "(H, D, D)", "those of keys, of the first head that shares them"},
		{"map.k.bias", "(H, D)", "likewise"},
		logGamma,
	},
	build: specBuilder(linearSpec),
}

func linearSpec(r *reader) (s attention.Spec, err error) {
	eps, err := r.Positive("eps", "0")
	if err != nil {
		return s, err
	}
	s = attention.Spec{
		Name:     r.row.Name,
		Setting:  "linear eps=" + strconv.FormatFloat(eps, 'g', -1, 64),
		Scale:    1,
		Map:      entry.EluPlusOne{},
		Coef:     []float64{0, 1},
		Eps:      eps,
		Positive: true,
	}
	switch name := r.Text("map"); name {
	case "elu+1":
	case "relu", "squared-relu":
		s.Map = rectifiedMap{squared: name == "squared-relu"}
		s.Setting += " map=" + name
	case "hedgehog":
		features, err := newHedgehog(r)
		if err != nil {
			return s, err
		}
		s.Map, s.Features = nil, features
		s.Setting += " map=" + name
	default:
		return s, r.Refuse("map", "elu+1, relu, squared-relu or hedgehog")
	}
	err = setWindow(r, &s)
	return s, err
}

// rectifiedMap is max(x, 0), or its square.
type rectifiedMap struct{ squared bool }

func (rectifiedMap) Dim(d int) int { return d }

func (rectifiedMap) Elementwise() {}

// Sparse marks that a row without a positive number has weight 0 for all keys.
func (rectifiedMap) Sparse() {}

// Roundings returns 1: the square is rounded.
func (rectifiedMap) Roundings() float64 { return 1 }

func (f rectifiedMap) Map(dst, x []tensor.Float) {
	for c, v := range x[:len(dst)] {
		dst[c] = max(v, 0)
	}
	if f.squared {
		kernel.Active[float]().Mul(dst, dst, dst)
	}
}

func (f rectifiedMap) Grad(dx, dy, x []tensor.Float) {
	for c, v := range x[:len(dx)] {
		switch {
		case !(v > 0):
			dx[c] = 0
		case f.squared:
			dx[c] = 2 * v * dy[c]
		default:
			dx[c] = dy[c]
		}
	}
}
