package reproduce

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/report"
)

// paired is the difference of two methods over the seeds that both have.
type paired struct {
	a, b  string // labels: a minus b
	mean  float64
	error float64 // standard error of the mean; NaN of one seed
	seeds int
}

// comparePairs returns the difference of two results by the value of a run.
func comparePairs(a, b *result, value func(*learned) float64) paired {
	p := paired{a: a.Label, b: b.Label}
	var list []float64
	for i := range a.Runs {
		for j := range b.Runs {
			if a.Runs[i].seed == b.Runs[j].seed {
				list = append(list, value(&a.Runs[i])-value(&b.Runs[j]))
			}
		}
	}
	var deviation float64
	p.mean, deviation = mean(list)
	if p.seeds = len(list); p.seeds < 2 {
		p.error = math.NaN()
	} else {
		p.error = deviation / math.Sqrt(float64(p.seeds))
	}
	return p
}

// String returns the difference with its standard error.
func (p *paired) String() string {
	if p.seeds < 2 {
		return fmt.Sprintf("%+.4f (one seed)", p.mean)
	}
	return fmt.Sprintf("%+.4f ± %.4f (%d seeds)", p.mean, p.error, p.seeds)
}

// holds reports whether the difference is at most what is required, or less where it is strict.
func (p *paired) holds(most float64, strict bool) bool {
	return p.mean < most || p.mean == most && !strict
}

// judge compares the difference with the largest that is required.
func (p *paired) judge(most float64, strict bool) string {
	sign, verdict := "≤", "not reached"
	if strict {
		sign = "<"
	}
	if p.holds(most, strict) {
		verdict = "reached"
	}
	text := fmt.Sprintf("%s %g required: %s", sign, most, verdict)
	if math.Abs(p.mean-most) < 2*p.error { // never of one seed, whose error is NaN
		text += ", within noise"
	}
	return text
}

// resultOf returns the result of a method, nil if there is none.
func (s *scored) resultOf(m *method) *result {
	for i := range s.Results {
		if s.Results[i].Label == m.Label {
			return &s.Results[i]
		}
	}
	return nil
}

// pairedTable is an empty table of paired differences.
func pairedTable(unit string) report.Table {
	return report.Table{
		Title: "Paired differences, " + unit, Head: []string{"lesson", "difference", "mean ± standard error", "required"},
		Note: "Trainings of the same seed have the same first weights, where shapes agree, and the same data in the same order. Within noise: less than two standard errors from what is required. One seed has no standard error.",
	}
}
