package zoo

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
)

func RetentionSpec(r *entry.Reader) (s attention.Spec, err error) {
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return s, err
	}
	forget := &attention.BuiltinDecay{Name: "gamma", Log: func(h int) float64 { return math.Log1p(-math.Exp2(float64(-5 - h))) }}
	if text := r.Text("gamma"); text != "1-2^(-5-h)" {
		var logs []float64
		for _, t := range strings.Split(text, ",") {
			x, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
			if err != nil || !(x > 0 && x <= 1) {
				return s, r.Refuse("gamma", "numbers above 0 and at most 1, or 1-2^(-5-h)")
			}
			logs = append(logs, math.Log(x))
		}
		forget.Log, forget.Heads = func(h int) float64 { return logs[h] }, len(logs)
	}
	return attention.Spec{
		Name:         r.Name,
		Setting:      fmt.Sprintf("retention gamma=%s scale=%s", r.Text("gamma"), entry.FormatScale(scale)),
		Scale:        scale,
		Coef:         []float64{0, 1},
		Unnormalized: true,
		BuiltinDecay: forget,
	}, nil
}
