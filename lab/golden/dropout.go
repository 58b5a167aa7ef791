package golden

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

// dropCase is fastmax of some order with masks, which the file holds.
var dropCase = regexp.MustCompile(`^(elem|1d|quadratic)_p([1-9])_(full|causal)$`)

func dropoutProblem(f *file, match []string) *problem {
	key := match[0]
	order, _ := strconv.Atoi(match[2]) // one digit
	r := &reader{f: f}
	p := newProblem(r, key)
	p.mechanism, p.options = "fastmax", mechanism.Options{Order: order}
	p.book = oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(order)}
	p.call.Causal = match[3] == "causal"
	d := &attention.Drop{Rate: r.scalar("rate")}
	p.drop, p.call.Drop = d, new(oracle.Drop)
	width := p.call.Q.D
	switch match[1] {
	case "elem":
		d.Kind, d.Q1, d.K1 = attention.ElementDrop, r.bools("mask_q1"), r.bools("mask_k1")
		p.call.Drop.Q, p.call.Drop.K = dropFactors(d.Rate, 1, d.Q1), dropFactors(d.Rate, 1, d.K1)
	case "1d":
		d.Kind, d.QTok, d.KTok = attention.TokenDrop, r.bools("mask_qtok"), r.bools("mask_ktok")
		p.call.Drop.Q, p.call.Drop.K = dropFactors(d.Rate, width, d.QTok), dropFactors(d.Rate, width, d.KTok)
	case "quadratic":
		d.Kind, d.Q2, d.K2 = attention.ProductDrop, r.bools("mask_q2"), r.bools("mask_k2")
		p.call.Drop.QQ, p.call.Drop.KK = dropFactors(d.Rate, 1, d.Q2), dropFactors(d.Rate, 1, d.K2)
		p.forms = []string{"direct", "linear"}
	}
	q, k := len(p.call.Q.Data), len(p.call.K.Data)
	if d.Kind == attention.ProductDrop {
		q, k = q*width, k*width
	}
	if x := p.call.Drop; r.err == nil && (max(len(x.Q), len(x.QQ)) != q || max(len(x.K), len(x.KK)) != k) {
		r.err = fmt.Errorf("masks of %s: do not fit q and k", key)
	}
	p.result(r, "o", "o_"+key)
	p.gradients(r, "do", map[string]string{"dq": "dq_" + key, "dk": "dk_" + key, "dv": "dv_" + key})
	return p.finish(r)
}

// dropFactors returns the dropout factors 1/(1-rate) or 0 of mask, each repeated times.
func dropFactors(rate float64, times int, mask []bool) []float64 {
	list := make([]float64, 0, len(mask)*times)
	for _, keep := range mask {
		f := 0.0
		if keep {
			f = 1 / (1 - rate)
		}
		for range times {
			list = append(list, f)
		}
	}
	return list
}
