package reproduce

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var largePictures = Row{
	Name:   "large-pictures",
	Doc:    "the shape in drawn pictures of 256 by 256, in patches of 16 by 16, from the hour on also in patches of 4 by 4, which are 4096 positions",
	Source: "a task of this project; FAST (arXiv 2402.07901, section 5) and TaylorShift (arXiv 2403.02920) name high-resolution images as uses",
	Claim:  "no table of this setting",
	Seeds:  true, Tunes: true,
	pieces: pictureLessons.pieces, outcome: pictureLessons.outcome(pictureFindings),
}

const (
	largePatches = "patches-4" // the lesson of 4096 positions

	pictureSide = 256
	leastShape  = 24 // half the side of the smallest shape
	mostShape   = 64

	pictureNoise = 0.15 // most that is added to a pixel or taken from it
)

// pictureShapes are the classes.
var pictureShapes = []string{"disc", "square", "triangle", "ring"}

// drawnShapes draws a bright shape of random size, place, turn and contrast on a noisy ground of random
// grey. A sample depends on its split and index.
type drawnShapes struct {
	patch int // pixels of a side of a patch
}

// Spec returns the specification of the samples.
func (t drawnShapes) Spec() task.Spec {
	side := pictureSide / t.patch
	return task.Spec{Name: "shapes-256", Kind: task.Class, Metric: task.Accuracy, Channels: t.patch * t.patch, Length: side * side, Parts: 1, Classes: len(pictureShapes),
		Count: [3]int{20000, 1000, 2000}}
}

// ClassNames returns the shapes.
func (t drawnShapes) ClassNames() []string { return pictureShapes }

// Sample overwrites s with the patches of a picture, from the left to the right and downwards. It
// returns an error if the split has no sample i.
func (t drawnShapes) Sample(s *task.Sample, split task.Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	key := rng.New(256).Fold(uint64(split)).Fold(uint64(i))
	uniform := func(k uint64, low, high float64) float64 { return low + (high-low)*key.Float64(k) }
	*s = task.Sample{Values: s.Values[:0], Class: int32(key.Intn(0, len(pictureShapes)))}
	size := uniform(1, leastShape, mostShape)
	x, y := uniform(2, mostShape, pictureSide-mostShape), uniform(3, mostShape, pictureSide-mostShape)
	sin, cos := math.Sincos(uniform(4, 0, 2*math.Pi))
	ground, contrast := uniform(5, 0.2, 0.5), uniform(6, 0.2, 0.4)
	noise := key.Fold(1)
	var drawn [4]uint32 // the noise of eight pixels
	side := pictureSide / t.patch
	s.Values = append(s.Values, make([]float32, pictureSide*pictureSide)...)
	for row := range pictureSide {
		for col := range pictureSide {
			// Coordinates of the shape, in units of its size.
			dx, dy := (float64(col)-x)/size, (float64(row)-y)/size
			if col%8 == 0 {
				drawn = noise.Uint32s(uint64(row*pictureSide + col))
			}
			value := ground + pictureNoise*(float64(drawn[col%8/2]>>(16*(col%2))&0xffff)/0x8000-1)
			if insideShape(s.Class, cos*dx+sin*dy, cos*dy-sin*dx) {
				value += contrast
			}
			patch := row/t.patch*side + col/t.patch
			s.Values[patch*t.patch*t.patch+row%t.patch*t.patch+col%t.patch] = float32(value)
		}
	}
	return nil
}

// insideShape reports whether a point lies in a shape, all of about the same area.
func insideShape(class int32, x, y float64) bool {
	r := x*x + y*y
	switch class {
	case 0:
		return r < 1
	case 1:
		return max(math.Abs(x), math.Abs(y)) < 0.886 // √π/2
	case 2: // equilateral, about its centre
		const in = 0.777 // radius of the inscribed circle
		return y > -in && y < 2*in-math.Sqrt(3)*math.Abs(x)
	}
	return r > 0.56 && r < 1.56
}

// Baselines scores the commonest shape and the nearest mean of at most 500 pictures.
func (t drawnShapes) Baselines(n int) ([]task.Baseline, error) {
	return task.NumberBaselines(t, min(n, 500))
}

var pictureLessons = lessons(func(o *Options) (list []*lesson, _ error) {
	for _, patch := range pick(o.Budget, []int{16}, []int{16, 4}, []int{16, 4}) {
		steps := pick(o.Budget, 1000, 1000, 10000)
		if patch < 16 {
			steps = pick(o.Budget, 0, 400, 10000)
		}
		l, err := presetLesson(fmt.Sprintf("patches-%d", patch), "picture", steps, nil)
		if err != nil {
			return nil, err
		}
		c := &l.Config
		c.SetTask("shapes-256")
		c.Model.Positions, c.Model.Hidden = model.Learned, 128
		c.Batch, c.Rate, c.MinRate, c.Standardise = 32, 2e-3, 2e-4, true
		if patch < 16 {
			c.Batch = 8
		}
		c.EvalEvery, c.SaveEvery, c.EvalSamples, c.FinalSamples = max(1, steps/4), max(1, steps/8), 200, pick(o.Budget, 500, 1000, 2000)
		l.open = func(string) (task.Source, error) { return drawnShapes{patch}, nil }
		l.Methods, l.Seeds = []method{softmax, programmed2, farThird2, linear}, pick(o.Budget, 1, 1, 3)
		l.Length, l.Baseline = (pictureSide/patch)*(pictureSide/patch), true
		list = append(list, l)
	}
	return list, nil
})

// pictureFindings put time beside accuracy.
func pictureFindings(out *Outcome, list []scored) error {
	isLarge := false
	t := report.Table{Title: "Accuracy in percent and processor time", Head: []string{"lesson", "positions", "mechanism", "accuracy", "± of the judged pictures", "ms an update"},
		Note: "Milliseconds of processor time, validations included."}
	for i := range list {
		s := &list[i]
		isLarge = isLarge || s.Name == largePatches
		for _, x := range s.Results {
			cost := none
			if run := x.Runs[0]; run.Cost > 0 && len(run.Steps) > 0 {
				cost = digits(1e3 * run.Cost / float64(run.Steps[len(run.Steps)-1].Step))
			}
			addRow(&t, s.Name, fmt.Sprint(s.Length), x.Label, fmt.Sprintf("%.1f", 100*x.Value), fmt.Sprintf("%.1f", 100*deviationOf(x.Value, float64(x.Runs[0].Score.Samples))), cost)
		}
	}
	if !isLarge {
		command, err := pictureLessons.namedHour("large-pictures", "^"+largePatches)
		if err != nil {
			return err
		}
		t.Note += " 4096 positions, in patches of 4 by 4: " + command + "."
	}
	out.Tables = append([]report.Table{t}, out.Tables...)
	return nil
}
