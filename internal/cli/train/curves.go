package train

import (
	"fmt"
	"io"

	"github.com/guptarohit/asciigraph"

	"github.com/farfield-ml/farfield/train"
)

// Columns and rows of the curves at the end of a training.
const (
	curveWidth  = 64
	curveHeight = 10
	rateHeight  = 3
)

// drawCurves draws loss and learning rate of a run by update.
func drawCurves(w io.Writer, dir string) error {
	steps, evals, err := train.ReadMetrics(dir)
	if err != nil || len(steps) < 2 {
		return err
	}
	last := steps[len(steps)-1].Step
	learned := SampleCurve(len(steps), func(i int) (int, float64) { return steps[i].Step, steps[i].Loss }, last)
	looks := 0
	for looks < len(evals) && evals[looks].Eval == train.EvalLook {
		looks++
	}
	list, caption := [][]float64{learned}, "loss by update    ── learned"
	if looks > 0 {
		list = append(list, SampleCurve(looks, func(i int) (int, float64) { return evals[i].Step, evals[i].Loss }, last))
		caption += "   oo validation"
	}
	axis := []asciigraph.Option{asciigraph.Width(curveWidth), asciigraph.XAxisRange(1, float64(last)), asciigraph.Precision(3)}
	fmt.Fprintln(w, asciigraph.PlotMany(list, append(axis, asciigraph.Height(curveHeight), asciigraph.Caption(caption),
		asciigraph.SeriesChars(asciigraph.DefaultCharSet, asciigraph.CreateCharSet("o")))...))
	rate := SampleCurve(len(steps), func(i int) (int, float64) { return steps[i].Step, steps[i].Rate }, last)
	fmt.Fprintln(w, asciigraph.Plot(rate, append(axis, asciigraph.Height(rateHeight), asciigraph.Precision(5), asciigraph.Caption("learning rate"))...))
	return nil
}

// SampleCurve returns a curve of n points, each the mean of a column of the plot. A column without
// values repeats the one before it; columns before the first value repeat the first mean.
func SampleCurve(n int, point func(i int) (step int, y float64), last int) []float64 {
	sums, counts := make([]float64, curveWidth), make([]float64, curveWidth)
	for i := range n {
		step, y := point(i)
		column := (step - 1) * curveWidth / last
		sums[column] += y
		counts[column]++
	}
	first := 0
	for counts[first] == 0 {
		first++
	}
	for i := range sums {
		switch {
		case counts[i] > 0:
			sums[i] /= counts[i]
		case i > first:
			sums[i] = sums[i-1]
		}
	}
	for i := range first {
		sums[i] = sums[first]
	}
	return sums
}
