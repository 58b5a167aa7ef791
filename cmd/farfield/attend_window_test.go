package main

import (
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
)

// A window gives the textbook's numbers in every form, with its parameter from
// the file and its gradient into it.
func TestAttendWindow(t *testing.T) {
	const h, n, d = 2, 9, 3
	q, k, v, do := random(1, h*n*d), random(2, n*d), random(3, n*d), random(4, h*n*d)
	gamma := []float64{0.5, 2}
	out := filepath.Join(t.TempDir(), "out.npz")
	in := written(t, "in.npz",
		made(t, "q", q, h, n, d), made(t, "k", k, 1, n, d), made(t, "v", v, 1, n, d), made(t, "do", do, h, n, d),
		made(t, "log_gamma", []float64{-0.6931471805599453, 0.6931471805599453}, h))
	call := &oracle.Call{
		Q: oracle.HeadsOf(wide(q), 1, h, n, d), K: oracle.HeadsOf(wide(k), 1, 1, n, d), V: oracle.HeadsOf(wide(v), 1, 1, n, d),
	}
	for _, join := range []string{"denominator", "separate"} {
		for _, causal := range []string{"true", "false"} {
			call.Causal = causal == "true"
			book := oracle.Mechanism{Coef: oracle.TaylorCoef(2), Window: &oracle.Window{Width: 4, Separate: join == "separate", Gamma: gamma}}
			want, grads := book.Forward(call), book.Backward(call, oracle.HeadsOf(wide(do), 1, h, n, d))
			for _, form := range []string{"direct", "linear", "step"} {
				if form == "step" && !call.Causal {
					continue
				}
				works(t, "attend", "--mechanism", "based", "--set", "window=4", "--set", "join="+join, "--causal="+causal, "--form", form, "--grad", in, out)
				got := read(t, out)
				within := tolerancesOf(form, 2, d, call, want, do)
				near(t, form+" o", got["o"], []int{h, n, d}, want.O.Data, within.output())
				near(t, form+" dq", got["dq"], []int{h, n, d}, grads.DQ.Data, within.gradient(grads.DQ.Data, 1))
				near(t, form+" dk", got["dk"], []int{1, n, d}, grads.DK.Data, within.gradient(grads.DK.Data, 1))
				near(t, form+" d_log_gamma", got["d_log_gamma"], []int{h}, grads.DLogGamma, within.gradient(grads.DLogGamma, n))
			}
		}
	}
	refuses(t, "form: step of based with a window needs a causal call", "attend", "--mechanism", "based", "--set", "window=4", "--form", "step", in, out)
	refuses(t, "setting join=denominator: needs a window", "attend", "--mechanism", "based", "--set", "join=denominator", "--causal", in, out)
	works(t, "plan", "--mechanism", "based", "--set", "window=4", "--n", "100")
	works(t, "plan", "--mechanism", "based", "--set", "window=4", "--n", "100", "--causal")
	refuses(t, "--causal: retention needs it", "plan", "--mechanism", "retention", "--n", "100")
}
