package task

import (
	"math"
	"slices"
)

// Shapes is Fleuret's one-dimensional task. The input is a signal of two triangles and two
// rectangles. The target is the same signal with the heights of both shapes of a kind set to
// their mean. Both have independent noise. Signals with touching shapes, or with triangles that
// differ by at most 4 in height, are rejected. The heights of rectangles are unrestricted, as in
// the original script, which tests the triangles twice.
type Shapes struct {
	// ByPlace averages the two shapes on the left and the two on the right instead. Their
	// means differ by more than 4.
	ByPlace bool
	Seed    uint64
}

// Sizes of the task.
const (
	shapesLength = 100
	shapesNoise  = 0.15
	shapesApart  = 4 // heights differ by more than this
	shapesTrain  = 25000
	shapesTest   = 1000
)

var shapesSettings = []Setting{
	{"group", "kind", "which two get their mean height: kind, or place (both on the left, both on the right)"},
}

func openShapes(o *settingsReader) (Source, error) {
	return &Shapes{ByPlace: o.oneOf("group", "kind", "place") == "place", Seed: o.Seed}, nil
}

// Spec returns the specification of the samples: 25,000 for training and 1,000 for test, as
// published, and 1,000 for validation. Values are not standardised, unlike in the original
// script.
func (t *Shapes) Spec() Spec {
	return Spec{Name: "shapes", Kind: Trace, Metric: MSE, Channels: 1, Length: shapesLength, Parts: 1, Outputs: 1,
		Count: [3]int{shapesTrain, shapesTest, shapesTest}}
}

// shape is a triangle or a rectangle.
type shape struct {
	rectangle             bool
	centre, height, width float64
}

// heightAt returns the height of the shape at position x.
func (s *shape) heightAt(x float64) float64 {
	distance := math.Abs(x - s.centre)
	if s.rectangle {
		if distance < s.width/2 {
			return s.height
		}
		return 0
	}
	return max(0, s.height-max(0, distance-0.5)*2*s.height/s.width)
}

// Sample overwrites s with a signal and its target. It returns an error if the split has no
// sample i.
func (t *Shapes) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	resetSample(s)
	d := newDraws(t.Seed, split, i)
	before := t.drawShapes(d)
	after := before
	for _, pair := range t.averagedPairs(&before) {
		mean := (before[pair[0]].height + before[pair[1]].height) / 2
		after[pair[0]].height, after[pair[1]].height = mean, mean
	}
	for x := range shapesLength {
		s.Values = append(s.Values, float32(signalAt(&before, x)+d.uniform(-shapesNoise, shapesNoise)))
	}
	for x := range shapesLength {
		s.Targets = append(s.Targets, float32(signalAt(&after, x)+d.uniform(-shapesNoise, shapesNoise)))
	}
	return nil
}

// drawShapes draws two triangles and two rectangles that the task accepts.
func (t *Shapes) drawShapes(d *randomDraws) [4]shape {
	for {
		var list [4]shape
		for k := range list {
			list[k] = shape{
				rectangle: k >= 2,
				height:    d.uniform(1, 25),
				width:     d.uniform(5, 11),
				centre:    d.uniform(5.5, shapesLength-5.5),
			}
		}
		if !hasCollision(&list) && t.hasDifference(&list) {
			return list
		}
	}
}

// hasCollision reports whether shapes overlap or touch.
func hasCollision(list *[4]shape) bool {
	for x := range shapesLength - 1 {
		n := 0
		for k := range list {
			if list[k].heightAt(float64(x)) > 0 || list[k].heightAt(float64(x+1)) > 0 {
				n++
			}
		}
		if n > 1 {
			return true
		}
	}
	return false
}

// hasDifference reports whether the heights to average differ by more than shapesApart.
func (t *Shapes) hasDifference(list *[4]shape) bool {
	if !t.ByPlace {
		return math.Abs(list[0].height-list[1].height) > shapesApart
	}
	p := t.averagedPairs(list)
	left := (list[p[0][0]].height + list[p[0][1]].height) / 2
	right := (list[p[1][0]].height + list[p[1][1]].height) / 2
	return math.Abs(left-right) > shapesApart
}

// averagedPairs returns the two pairs of shapes whose heights are averaged.
func (t *Shapes) averagedPairs(list *[4]shape) [2][2]int {
	if !t.ByPlace {
		return [2][2]int{{0, 1}, {2, 3}}
	}
	order := []int{0, 1, 2, 3}
	slices.SortFunc(order, func(a, b int) int {
		if list[a].centre < list[b].centre {
			return -1
		}
		return 1
	})
	return [2][2]int{{order[0], order[1]}, {order[2], order[3]}}
}

// signalAt returns the height of the highest shape at position x.
func signalAt(list *[4]shape, x int) float64 {
	y := 0.
	for k := range list {
		y = max(y, list[k].heightAt(float64(x)))
	}
	return y
}

// Baselines scores the mean of the targets and the input itself. It returns the errors of
// Sample.
func (t *Shapes) Baselines(n int) ([]Baseline, error) {
	return runBaselines(
		func() (Baseline, error) { return scoreMeanTarget(t, n) },
		func() (Baseline, error) {
			return scoreNumbers("the input itself", t, n, 0, func(s *Sample, i int) float64 { return float64(s.Values[i]) })
		},
	)
}

// askShapes returns the question for the target of a signal.
func askShapes(_ *settingsReader, k ModelInfo) (*Question, error) {
	return askValues(Spec{Kind: Trace, Outputs: 1}, nil, k, false), nil
}
