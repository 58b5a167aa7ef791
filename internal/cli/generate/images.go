package generate

import (
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/dataset"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/stream"
	"github.com/farfield-ml/farfield/train"
)

// drawFlags are the flags of image generation.
type drawFlags struct {
	Images   int    `placeholder:"N" help:"Number of images, of a model of mnist-gen or cifar-gen."`
	Out      string `short:"o" placeholder:"FILE" help:"PNG file with the images side by side."`
	Complete string `placeholder:"FILE|N" help:"Complete the upper half of a PNG, a JPEG or test image N."`
	Way      string `complete:"recompute,cache,state" placeholder:"WAY" help:"Method: recompute, cache or state (by the mechanism)."`
	Batch    int    `placeholder:"N" help:"Images of a batch (up to 192 in a gigabyte)."`
}

// wantsImages reports whether images are asked for.
func (f *drawFlags) wantsImages() (bool, error) {
	if f.Images < 0 {
		return false, env.InputErrorf("--images: %d is negative", f.Images)
	}
	if f.Images > 0 {
		if f.Out == "" {
			return false, env.InputErrorf("--out: a PNG file is needed for --images")
		}
		return true, nil
	}
	return false, flags.RefuseFlags("is of images, which --images asks for",
		flags.Presence{Name: "--out", IsGiven: f.Out != ""}, flags.Presence{Name: "--complete", IsGiven: f.Complete != ""}, flags.Presence{Name: "--way", IsGiven: f.Way != ""}, flags.Presence{Name: "--batch", IsGiven: f.Batch != 0})
}

// draw draws images.
func (c *Command) draw(e *env.Env) error {
	err := flags.RefuseFlags("is of texts, not of --images",
		flags.Presence{Name: "--prompt", IsGiven: c.Prompt != ""}, flags.Presence{Name: "--prompt-file", IsGiven: c.PromptFile != ""}, flags.Presence{Name: "--ids", IsGiven: c.IDs != ""},
		flags.Presence{Name: "--tokens", IsGiven: c.Tokens != nil}, flags.Presence{Name: "--temperature", IsGiven: c.Temperature != nil},
		flags.Presence{Name: "--top-k", IsGiven: c.TopK != nil}, flags.Presence{Name: "--top-p", IsGiven: c.TopP != nil}, flags.Presence{Name: "--save", IsGiven: c.Save != ""},
		flags.Presence{Name: "--resume", IsGiven: c.Resume != ""}, flags.Presence{Name: "--time", IsGiven: c.Time})
	if err != nil {
		return err
	}
	if err := env.CheckOutput(c.Out, append(runs.ModelFiles(c.Model), c.Complete)...); err != nil {
		return env.InputErrorf("--out: %w", err)
	}
	options, err := c.Chosen()
	if err != nil {
		return err
	}
	opened, err := runs.Open(c.Model, options)
	if err != nil {
		return env.MarkInput(err)
	}
	m := opened.Model()
	d := generate.ImageOptions{Count: c.Images, Batch: c.Batch, Mode: generate.DecodeMode(c.Way), Seed: 1}
	if c.Seed != nil {
		d.Seed = *c.Seed
	}
	if d.ImageShape, err = generate.SquareShape(m.Config().Context); err != nil {
		return env.MarkInput(err)
	}
	var images [][]byte
	if c.Complete != "" {
		whole, err := c.original(d.ImageShape)
		if err != nil {
			return env.MarkInput(err)
		}
		images = append(images, whole)
		d.Prefix = whole[:d.Height/2*d.Width*d.Channels]
	}
	progress := progress.NewStream(e)
	d.Progress = func(done, all int64) { progress.Show(stream.Progress{DoneTokens: done, TotalTokens: all}) }
	drawn, err := generate.DrawImages(e.Context, m, d, func(_ int, levels []byte) error {
		images = append(images, levels)
		return nil
	})
	progress.Clear()
	if err != nil {
		if e.Context.Err() != nil && errors.Is(err, e.Context.Err()) {
			return err
		}
		return env.MarkInput(err)
	}
	grid, err := generate.ComposeGrid(d.ImageShape, images)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(c.Out, func(w io.Writer) error { return png.Encode(w, grid) }); err != nil {
		return err
	}
	if c.JSON {
		return display.PrintJSON(e.Stdout, drawn)
	}
	state := ""
	if drawn.StateBytes > 0 {
		state = ", " + display.FormatBytes(float64(drawn.StateBytes)) + " of state"
	}
	_, err = fmt.Fprintf(e.Stdout, "%s: %d images of %d×%d in %.2f s, %.3g images/s by %s, %d at a time%s\n",
		c.Out, drawn.Images, d.Height, d.Width, drawn.Seconds, drawn.ImagesPerSecond, drawn.Mode, drawn.Batch, state)
	return err
}

// original returns the levels of the image that is to be completed.
func (c *Command) original(s generate.ImageShape) ([]byte, error) {
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
func (c *Command) tested(n int) ([]byte, error) {
	config, err := train.RunConfig(train.RunFolder(c.Model))
	if err != nil {
		return nil, err
	}
	if err := runs.CheckStoredData(config, filepath.Join(train.RunFolder(c.Model), "config.json")); err != nil {
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
