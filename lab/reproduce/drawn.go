package reproduce

import (
	"bytes"
	"context"
	"fmt"
	"image/png"

	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train"
)

// drawnTable is a table of models that draw images level by level.
type drawnTable struct {
	Row       string
	Pixels    *pixelModel
	Shape     generate.ImageShape
	Sheet     int  // images that each model draws
	Recompute bool // an image is drawn by recomputing, too, where it takes seconds

	// Of the budgets; quick has drawnSmall in place of the preset's sizes.
	Presets [3]string
	Steps   [3]int

	EvalSamples, FinalSamples int // below the full budget
	Published                 []drawnPublished
	Neighbours                float64 // bits of the task's table of neighbours that has seen all images; 0: not known
	Chunk                     int     // published tokens of a chunk of LSH attention

	Methods []method // nil: those of the published table, without LSH in the quick budget
}

// drawnPublished is a published row: bits per dimension, and images a second with a
// state or a cache and by recomputing; 0 where there is none.
type drawnPublished struct {
	Label                  string
	Bits, Rate, Recomputed float64
}

// drawnSmall are the sizes of models within the quick budget.
var drawnSmall = struct{ Layers, Width int }{2, 64}

func (d *drawnTable) lessons() lessons {
	return func(o *Options) ([]*lesson, error) {
		l, err := presetLesson(d.Pixels.Name, d.Presets[o.Budget], d.Steps[o.Budget], nil)
		if err != nil {
			return nil, err
		}
		c := &l.Config
		c.Model.Kind, c.Model.Outputs = model.Decoder, 3*pixelParts
		if o.Budget == Quick {
			c.Model.Layers, c.Model.Width, c.Model.Hidden = drawnSmall.Layers, drawnSmall.Width, 4*drawnSmall.Width
			c.Model.Heads = max(1, drawnSmall.Width/32) // heads as wide as the published
		}
		if o.Budget != Full {
			c.EvalSamples, c.FinalSamples = d.EvalSamples, d.FinalSamples
		}
		l.Methods, l.Seeds = []method{softmax, linear, fastmax2}, 1
		switch {
		case d.Methods != nil:
			l.Methods = d.Methods
		case o.Budget != Quick:
			l.Methods = append(l.Methods, d.lsh(1), d.lsh(4))
		}
		l.Length, l.Vocab, l.Baseline, l.look = d.Shape.Size(), pixelLevels+1, true, d.look
		return []*lesson{l}, nil
	}
}

// lsh is causal LSH attention with the published chunks and buckets, as the authors' program averages
// its rounds. There a chunk may hold several buckets of the sorted sequence, and later levels move its borders;
// here each bucket has chunks of its own.
func (d *drawnTable) lsh(rounds int) method {
	m := lsh(rounds)
	m.Set = map[string]string{"rounds": fmt.Sprint(rounds), "bucket": fmt.Sprint(d.Chunk), "buckets": "64", "form": "fast-transformers"}
	return m
}

// drawnImages are what a trained model draws.
type drawnImages struct {
	Images [][]byte             `json:"images"`
	Stats  []generate.DrawStats `json:"drawn"` // a sheet at a time, one image, one by recomputing
}

func (d *drawnTable) look(t *train.Trainer) (any, error) {
	var x drawnImages
	draw := func(count int, way generate.DecodeMode, emit func(int, []byte) error) error {
		drawn, err := generate.DrawImages(context.Background(), t.Model(), generate.ImageOptions{ImageShape: d.Shape, Count: count, Batch: count, Mode: way, Seed: 1}, emit)
		x.Stats = append(x.Stats, drawn)
		return err
	}
	forget := func(int, []byte) error { return nil }
	err := draw(d.Sheet, "", func(_ int, levels []byte) error {
		x.Images = append(x.Images, levels)
		return nil
	})
	if err == nil {
		err = draw(1, "", forget)
	}
	if err == nil && d.Recompute && x.Stats[0].Mode == generate.ModeCache {
		err = draw(1, generate.ModeRecompute, forget)
	}
	return x, err
}

func (d *drawnTable) outcome(o *Options, r *Results) (*Outcome, error) {
	return d.lessons().outcome(d.findings)(o, r)
}

// findings puts what was published beside what is here, and shows the images.
func (d *drawnTable) findings(out *Outcome, list []scored) error {
	s := &list[0]
	t := report.Table{
		Title: "Bits per dimension, and images a second",
		Head:  []string{"mechanism", "bits published", "here", "images/s published", "here, " + fmt.Sprint(d.Sheet) + " at a time", "here, one", "by recomputing, published", "here, one"},
		Note: fmt.Sprintf("Here: %d layers of width %d, on a CPU. Published: %d layers of width %d, on a GPU. Without a cache softmax recomputes all levels so far for each.",
			s.Config.Model.Layers, s.Config.Model.Width, d.Pixels.Layers, pixelWidth),
	}
	if k := s.Config.Model.Conv; k > 0 {
		t.Note += fmt.Sprintf(" Here convolutions over %d levels come before attention and MLPs, which learn sooner what the level beside says.", k)
	}
	if n := s.Config.FinalSamples; n > 0 {
		t.Note += fmt.Sprintf(" Bits here are of %d test images.", n)
	}
	t.Note += " LSH here is causal: each bucket has chunks of its own, while published chunks hold several buckets, and later levels move their borders."
	if !d.Recompute {
		t.Note += " What recomputing takes is in linear-latency."
	}
	known := func(x float64) string {
		if x == 0 {
			return none
		}
		return fmt.Sprint(x)
	}
	published := map[string]drawnPublished{}
	for _, p := range d.Published {
		published[p.Label] = p
	}
	var found []string
	for _, x := range s.Results {
		p := published[x.Label]
		delete(published, x.Label)
		look, err := convert[drawnImages](x.Runs[0].Look)
		if err != nil {
			return err
		}
		rates := []string{none, none, none}
		for i, drawn := range look.Stats {
			rates[i] = digits(drawn.ImagesPerSecond)
		}
		addRow(&t, x.Label, known(p.Bits), fmt.Sprintf("%.3f", x.Value), known(p.Rate), rates[0], rates[1], known(p.Recomputed), rates[2])
		found = append(found, fmt.Sprintf("%s %.3f bits at %s images/s", x.Label, x.Value, rates[0]))
		if err := d.show(out, &x, look.Images); err != nil {
			return err
		}
	}
	for _, p := range d.Published { // that are not made here
		if _, left := published[p.Label]; left {
			addRow(&t, p.Label, known(p.Bits), none, known(p.Rate), none, none, known(p.Recomputed), none)
		}
	}
	for _, b := range s.Baselines {
		addRow(&t, b.Name+" (baseline)", none, fmt.Sprintf("%.3f", b.Score), none, none, none, none, none)
	}
	if d.Neighbours > 0 {
		t.Note += fmt.Sprintf(" The table of three neighbours has %.3f bits where it has seen all images.", d.Neighbours)
	}
	if d.Methods == nil && len(s.Methods) < len(d.Published)+1 {
		command, err := d.lessons().namedHour(d.Row, "lsh")
		if err != nil {
			return err
		}
		t.Note += " LSH in models of the hour: " + command + "."
	}
	out.Tables = append([]report.Table{t}, out.Tables...)
	out.find("%s.", listed(found))
	return nil
}

// show puts images that a model has drawn on the page.
func (d *drawnTable) show(out *Outcome, x *result, images [][]byte) error {
	if len(images) == 0 {
		return nil
	}
	grid, err := generate.ComposeGrid(d.Shape, images)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := png.Encode(&b, grid); err != nil {
		return err
	}
	title := fmt.Sprintf("Drawn with %s, after %d updates", x.Label, x.Runs[0].Steps[len(x.Runs[0].Steps)-1].Step)
	name := "drawn-" + x.file()
	if d.Methods != nil { // one of several tables of a page
		name = d.Pixels.Name + "-" + name
	}
	out.Sections = append(out.Sections, PageSection{name, report.Section{
		Title: title, Picture: &report.Picture{Name: title, PNG: b.Bytes()}, Caption: fmt.Sprintf("%d images that are drawn first, not chosen; %.3f bits per dimension.", len(images), x.Value),
	}})
	return nil
}
