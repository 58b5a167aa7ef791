package reproduce

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/train"
)

// normSummary sum up the norms of the gradients of a training, before they are clipped.
type normSummary struct {
	Updates int     `json:"updates"`
	First   float64 `json:"first"`   // median of the first tenth of the updates
	Median  float64 `json:"median"`  // of the last half
	Largest float64 `json:"largest"` // of all
	At      int     `json:"at"`      // update of the largest
	Above   int     `json:"above"`   // updates of the last half above ten times its median
	Loss    float64 `json:"loss"`    // median of the last tenth
}

// sumNorms returns the norms of a curve, nil of an empty one.
func sumNorms(curve []train.Step) *normSummary {
	n := len(curve)
	if n == 0 {
		return nil
	}
	norm := func(s train.Step) float64 { return s.GradNorm }
	x := &normSummary{Updates: n, First: medianOf(curve[:max(1, n/10)], norm), Median: medianOf(curve[n/2:], norm),
		Loss: medianOf(curve[n-max(1, n/10):], func(s train.Step) float64 { return s.Loss })}
	for i, s := range curve {
		if s.GradNorm > x.Largest {
			x.Largest, x.At = s.GradNorm, s.Step
		}
		if i >= n/2 && s.GradNorm > 10*x.Median {
			x.Above++
		}
	}
	return x
}

// medianOf returns the median of f over a part of a curve.
func medianOf(part []train.Step, f func(train.Step) float64) float64 {
	var all []float64
	for _, s := range part {
		all = append(all, f(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// Blocks that FAST names as alternatives.
var (
	hyena = method{Label: "hyena", Name: "hyena"}
	crate = method{Label: "crate", Name: "crate", change: func(c *train.Config) { c.Model.Hidden = 0 }} // its own step
)

// trainedRates are what the rate of the preset is multiplied by.
var trainedRates = []float64{1, 10}

// trainedLessons are trainings without clipping, at the rate of their preset and at ten times it:
// a decoder of text, whose mechanisms are all causal.
var trainedLessons = lessons(func(o *Options) (list []*lesson, _ error) {
	for _, factor := range trainedRates {
		l, err := shakespeareLesson(o, pick(o.Budget, 500, 1000, 5000))
		if err != nil {
			return nil, err
		}
		l.Name = "trained"
		if factor != 1 {
			l.Name = fmt.Sprintf("trained-rate-%g", factor)
		}
		c := &l.Config
		c.Clip, c.Rate, c.MinRate = 0, factor*c.Rate, factor*c.MinRate
		l.Gradients, l.Baseline, l.Seeds = true, false, pick(o.Budget, 1, 1, 3)
		l.Methods = []method{softmax, published1, fastmax1, published2, fastmax2, taylorshift, linear, performer, rfa}
		if factor == 1 {
			l.Methods = append(l.Methods, mamba2, retnet, hyena, crate)
		}
		list = append(list, l)
	}
	return list, nil
})

// addTrained adds what came of the trainings.
func (out *Outcome) addTrained(o *Options, r *Results) error {
	all, err := trainedLessons(o)
	if err != nil {
		return err
	}
	t := report.Table{
		Title: "Gradients of trained models, without clipping",
		Head:  []string{"training", "mechanism", "updates", "seeds", "median of the first tenth", "of the last half", "largest", "at update", "above ten medians", "training loss at the end", "nats a character", "ms an update", "end"},
		Note: "Norms of all gradients together, at every update; a decoder of characters, 4 layers of width 128 with 4 heads, a context of 64, at the rate of its preset and at ten times it. " +
			"Medians and the loss are of the first seed, the largest norm and its update of all. Above ten medians: updates of the last half. " +
			"Nats a character are of the validation part, of the first seed; milliseconds are processor time, validations included. Other rows of this page are of first weights.",
	}
	for _, l := range all {
		var wild, failed []string
		for i := range l.Methods {
			m := &l.Methods[i]
			var first *normSummary
			seeds, largest, at, above, end := 0, 0.0, 0, 0, "whole"
			score, cost := none, none
			for _, seed := range l.seeds(o, m) {
				run, found, err := get[learned](r, l.piece(m, seed, 1))
				if err != nil {
					return err
				}
				if !found || run.Norms == nil {
					continue
				}
				seeds++
				if first == nil {
					first = run.Norms
					if run.Diverged == "" {
						score = digits(run.Score.Value)
					}
					if run.Cost > 0 {
						cost = digits(1e3 * run.Cost / float64(run.Norms.Updates))
					}
				}
				above += run.Norms.Above
				if run.Norms.Largest > largest || math.IsNaN(run.Norms.Largest) {
					largest, at = run.Norms.Largest, run.Norms.At
				}
				if run.Diverged != "" {
					end = fmt.Sprintf("%s after %d updates", diverged, run.Norms.Updates)
				}
			}
			if first == nil {
				continue
			}
			addRow(&t, l.Name, m.Label, fmt.Sprint(first.Updates), fmt.Sprint(seeds), digits(first.First), digits(first.Median), digits(largest), fmt.Sprint(at), fmt.Sprint(above), digits(first.Loss), score, cost, end)
			if end != "whole" {
				failed = append(failed, m.Label)
			} else if largest > 100*first.Median {
				wild = append(wild, m.Label)
			}
		}
		if len(t.Rows) == 0 {
			continue
		}
		out.find("%s, without clipping: diverged: %s. A norm above a hundred medians: %s.", l.Name, listed(failed), listed(wild))
	}
	out.Tables = append(out.Tables, t)
	return nil
}
