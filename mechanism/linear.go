package mechanism

import (
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

var linear = Row{
	Name:   "linear",
	Doc:    "φ(q)·φ(k) with φ = elu + 1: linear attention",
	Source: "Katharopoulos et al. 2020, arXiv 2006.16236, eq. 4-7",
	Traits: "positive weights; direct and linear forms; state of fixed size",
	Settings: []Setting{
		{"eps", "1e-6", "added to the sum of the weights, which falls short of 1 where they are tiny"},
	},
	f32: spec(linearSpec[float32]),
	f64: spec(linearSpec[float64]),
}

func linearSpec[T tensor.Float](r *reader) (s attention.Spec[T], err error) {
	eps, err := r.positive("eps", "0")
	return attention.Spec[T]{
		Name:     r.row.Name,
		Setting:  "linear eps=" + strconv.FormatFloat(eps, 'g', -1, 64),
		Scale:    1,
		Map:      eluPlusOne[T]{},
		Coef:     []float64{0, 1},
		Eps:      eps,
		Positive: true,
	}, err
}

// eluPlusOne is elu(x) + 1: x + 1 above 0, exp(x) below.
type eluPlusOne[T tensor.Float] struct{}

func (eluPlusOne[T]) Dim(d int) int { return d }

func (eluPlusOne[T]) Elementwise() {}

// Roundings has those of the exponential, by kernel.TestExpAccuracy; the sum has
// one.
func (eluPlusOne[T]) Roundings() float64 { return 8 }

func (eluPlusOne[T]) Map(dst, x []T) { kernel.Active[T]().EluPlusOne(dst, x[:len(dst)]) }

func (eluPlusOne[T]) Grad(dx, dy, x []T) { kernel.Active[T]().EluPlusOneGrad(dx, dy, x) }
