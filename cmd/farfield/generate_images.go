package main

import (
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"strconv"

	"github.com/farfield-ml/farfield/dataset"
	"github.com/farfield-ml/farfield/generate"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/stream"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// drawFlags are those of images.
type drawFlags struct {
	Images   int    `placeholder:"N" help:"Images to draw, with a model that learned mnist-gen or cifar-gen."`
	Out      string `short:"o" placeholder:"FILE" help:"PNG file that images are drawn in, in rows beside one another."`
	Complete string `placeholder:"FILE|N" help:"Complete the upper half of an image: a PNG or JPEG of the model's size, or test image N of its task. The image itself comes first."`
	Way      string `complete:"recompute,cache,state" placeholder:"WAY" help:"How the model is asked for the next level: recompute runs it over the image so far, cache keeps keys and values (mechanisms that do not stream), state a state of fixed size (those that do). By default what the mechanism has."`
	Batch    int    `placeholder:"N" help:"Images drawn at a time. By default up to 192, as many as find room in a gigabyte."`
}

// given reports whether images are asked for.
func (f *drawFlags) given() (bool, error) {
	if f.Images < 0 {
		return false, inputf("--images: %d is negative", f.Images)
	}
	if f.Images > 0 {
		if f.Out == "" {
			return false, inputf("--out: a PNG file is needed for --images")
		}
		return true, nil
	}
	return false, unsuited("is of images, which --images asks for",
		flagGiven{"--out", f.Out != ""}, flagGiven{"--complete", f.Complete != ""}, flagGiven{"--way", f.Way != ""}, flagGiven{"--batch", f.Batch != 0})
}

// flagGiven says whether a flag was given.
type flagGiven struct {
	name  string
	given bool
}

// unsuited reports the first of the flags that was given, and why it should not be.
func unsuited(why string, flags ...flagGiven) error {
	for _, f := range flags {
		if f.given {
			return inputf("%s: %s", f.name, why)
		}
	}
	return nil
}

// draw draws images.
func (c *generateCmd) draw(e *env) error {
	err := unsuited("is of texts, not of --images",
		flagGiven{"--prompt", c.Prompt != ""}, flagGiven{"--prompt-file", c.PromptFile != ""}, flagGiven{"--temperature", c.Temperature != nil},
		flagGiven{"--top-k", c.TopK != nil}, flagGiven{"--top-p", c.TopP != nil}, flagGiven{"--save", c.Save != ""},
		flagGiven{"--resume", c.Resume != ""}, flagGiven{"--time", c.Time})
	if err != nil {
		return err
	}
	if err := checkOutput(c.Out, c.Complete); err != nil {
		return inputf("--out: %w", err)
	}
	m, _, err := train.LoadModel(c.Model)
	if err != nil {
		return input(err)
	}
	d := generate.ImageOptions{Count: c.Images, Batch: c.Batch, Mode: generate.DecodeMode(c.Way), Seed: 1}
	if c.Seed != nil {
		d.Seed = *c.Seed
	}
	if d.ImageShape, err = generate.SquareShape(m.Config().Context); err != nil {
		return input(err)
	}
	var images [][]byte
	if c.Complete != "" {
		whole, err := c.original(d.ImageShape)
		if err != nil {
			return input(err)
		}
		images = append(images, whole)
		d.Prefix = whole[:d.Height/2*d.Width*d.Channels]
	}
	progress := newStreamProgress(e)
	d.Progress = func(done, all int64) { progress.show(stream.Progress{Done: done, Total: all}) }
	drawn, err := generate.DrawImages(e.ctx, m, d, func(_ int, levels []byte) error {
		images = append(images, levels)
		return nil
	})
	progress.clear()
	if err != nil {
		if e.ctx.Err() != nil && errors.Is(err, e.ctx.Err()) {
			return err
		}
		return input(err)
	}
	grid, err := generate.ComposeGrid(d.ImageShape, images)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(c.Out, func(w io.Writer) error { return png.Encode(w, grid) }); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(e.stdout, drawn)
	}
	state := ""
	if drawn.StateBytes > 0 {
		state = ", " + bytesText(float64(drawn.StateBytes)) + " of state"
	}
	_, err = fmt.Fprintf(e.stdout, "%s: %d images of %d×%d in %.2f s, %.3g images/s by %s, %d at a time%s\n",
		c.Out, drawn.Images, d.Height, d.Width, drawn.Seconds, drawn.ImagesPerSecond, drawn.Mode, drawn.Batch, state)
	return err
}

// original returns the levels of the image that is to be completed.
func (c *generateCmd) original(s generate.ImageShape) ([]byte, error) {
	if _, err := os.Stat(c.Complete); err != nil {
		n, number := strconv.Atoi(c.Complete)
		if number != nil {
			return nil, fmt.Errorf("--complete: %w; it is no number of a test image either", err)
		}
		return c.tested(n)
	}
	p, err := dataset.ReadFile(c.Complete, dataset.ReadPicture)
	if err != nil {
		return nil, err
	}
	if p.Height != s.Height || p.Width != s.Width {
		return nil, fmt.Errorf("%s: has %d×%d pixels, the model draws %d×%d", c.Complete, p.Height, p.Width, s.Height, s.Width)
	}
	if s.Channels == 3 {
		return p.Pixels, nil
	}
	levels := make([]byte, s.Size())
	for i := range levels {
		levels[i] = task.GreyLevel(p.Pixels[3*i], p.Pixels[3*i+1], p.Pixels[3*i+2])
	}
	return levels, nil
}

// tested returns test image n of the task that the model learned.
func (c *generateCmd) tested(n int) ([]byte, error) {
	config, err := train.RunConfig(train.RunFolder(c.Model))
	if err != nil {
		return nil, err
	}
	src, err := config.OpenTask()
	if err != nil {
		return nil, err
	}
	if kind := src.Spec().Kind; kind != task.Level {
		return nil, fmt.Errorf("--complete: task %s asks for %v, not for the %v of an image", config.Task, kind, task.Level)
	}
	var s task.Sample
	if err := src.Sample(&s, task.Test, n); err != nil {
		return nil, err
	}
	levels := make([]byte, len(s.Targets))
	for i, x := range s.Targets {
		levels[i] = byte(x)
	}
	return levels, nil
}
