package generate

import (
	"bytes"
	"context"
	"errors"
	"image/color"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func levelModel(t *testing.T, mechanism string, change func(*model.Config)) *model.Model {
	t.Helper()
	c := model.Config{
		Kind: model.Decoder, Vocab: 257, Outputs: 6, Loss: model.Logistics, Layers: 2, Heads: 2, Width: 16, Context: 25,
		Positions: model.Learned, Mechanism: mechanism, Bias: true,
	}
	if change != nil {
		change(&c)
	}
	m, err := model.New(c, rng.New(5))
	if err != nil {
		t.Fatal(err)
	}
	// First weights say nearly the same whatever came before.
	for i, p := range m.Params().All() {
		for j := range p.Data {
			p.Data[j] += float32(0.3 * rng.New(6).Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	return m
}

func drawImages(t *testing.T, m *model.Model, d ImageOptions) [][]byte {
	t.Helper()
	var all [][]byte
	took, err := DrawImages(context.Background(), m, d, func(i int, levels []byte) error {
		if i != len(all) {
			t.Errorf("image %d comes after %d others", i, len(all))
		}
		all = append(all, slices.Clone(levels))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if took.Images != d.Count || took.Seconds <= 0 || took.ImagesPerSecond <= 0 {
		t.Errorf("drawing %d images took %+v", d.Count, took)
	}
	return all
}

// All ways draw the same images, whatever the batch.
func TestModesDrawTheSameImages(t *testing.T) {
	shape := ImageShape{5, 5, 1}
	for _, x := range []struct {
		mechanism string
		way       DecodeMode
		change    func(*model.Config)
	}{
		{"linear", ModeState, nil}, {"softmax", ModeCache, nil}, {"fastmax", ModeState, func(c *model.Config) { c.Conv = 3 }},
		{"linear", ModeState, func(c *model.Config) { c.Loss, c.Outputs = model.CrossEntropy, 256 }},
	} {
		m := levelModel(t, x.mechanism, x.change)
		want := drawImages(t, m, ImageOptions{ImageShape: shape, Count: 7, Seed: 3})
		// Forms differ by roundings, which change a level about once in 10⁵.
		for _, d := range []ImageOptions{{Batch: 3}, {Batch: 1, Mode: x.way}, {Batch: 4, Mode: ModeRecompute}} {
			d.ImageShape, d.Count, d.Seed = shape, 7, 3
			for i, got := range drawImages(t, m, d) {
				if !bytes.Equal(got, want[i]) {
					t.Errorf("%s %s in batches of %d: image %d is %v, want %v", x.mechanism, d.Mode, d.Batch, i, got, want[i])
				}
			}
		}
		if bytes.Equal(want[0], want[1]) {
			t.Errorf("%s: two images are the same", x.mechanism)
		}
		if other := drawImages(t, m, ImageOptions{ImageShape: shape, Count: 1, Seed: 4}); bytes.Equal(other[0], want[0]) {
			t.Errorf("%s: the seed changes nothing", x.mechanism)
		}
		// A prefix may be the whole image, and later changes of it change nothing.
		for _, way := range []DecodeMode{"", ModeRecompute} {
			given := slices.Clone(want[2])
			a, err := NewImageGenerator(m, ImageOptions{ImageShape: shape, Count: 2, Prefix: given, Mode: way})
			if err != nil {
				t.Fatal(err)
			}
			given[0]++
			if _, err := a.Draw(context.Background(), func(i int, levels []byte) error {
				if !bytes.Equal(levels, want[2]) {
					t.Errorf("%s %q: image %d is %v, the prefix %v", x.mechanism, way, i, levels, want[2])
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		// A given half stays, and the levels after it are the same as without a prefix.
		half := want[2][:13]
		for _, way := range []DecodeMode{"", ModeRecompute} {
			again := drawImages(t, m, ImageOptions{ImageShape: shape, Count: 3, Seed: 3, Prefix: half, Mode: way})
			if !bytes.Equal(again[2], want[2]) {
				t.Errorf("%s %q: completed to %v, want %v", x.mechanism, way, again[2], want[2])
			}
			if !bytes.HasPrefix(again[0], half) || bytes.Equal(again[0], again[2]) {
				t.Errorf("%s %q: the first completion is %v", x.mechanism, way, again[0])
			}
		}
	}
}

// An artist draws the same images again, after it was interrupted, too.
func TestImageGeneratorRepeatsAfterAnInterrupt(t *testing.T) {
	defer par.SetThreads(0)
	for _, mechanism := range []string{"linear", "softmax"} {
		for _, threads := range []int{1, 2} {
			par.SetThreads(threads)
			m := levelModel(t, mechanism, nil)
			d := ImageOptions{ImageShape: ImageShape{5, 2, 1}, Count: 59, Batch: 26, Seed: 3}
			want := drawImages(t, m, d)
			a, err := NewImageGenerator(m, d)
			if err != nil {
				t.Fatal(err)
			}
			broken := errors.New("broken")
			if _, err := a.Draw(context.Background(), func(i int, _ []byte) error {
				if i == 30 {
					return broken
				}
				return nil
			}); err != broken {
				t.Errorf("%s: emit fails, Draw gives %v", mechanism, err)
			}
			over, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := a.Draw(over, func(int, []byte) error { return nil }); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: cancelled, Draw gives %v", mechanism, err)
			}
			for range 2 {
				n := 0
				drawn, err := a.Draw(context.Background(), func(i int, levels []byte) error {
					if i != n || !bytes.Equal(levels, want[i]) {
						t.Fatalf("%s, %d threads: image %d, after %d others, is %v, want %v", mechanism, threads, i, n, levels, want[i])
					}
					n++
					return nil
				})
				if err != nil || n != d.Count || drawn.Images != n {
					t.Fatalf("%s, %d threads: %d images, said to be %d: %v", mechanism, threads, n, drawn.Images, err)
				}
			}
		}
	}
}

func TestSecondsOfDrawingLeaveEmitOut(t *testing.T) {
	m := levelModel(t, "linear", nil)
	var emitting time.Duration
	start := time.Now()
	drawn, err := DrawImages(context.Background(), m, ImageOptions{ImageShape: ImageShape{2, 2, 1}, Count: 2, Batch: 1}, func(int, []byte) error {
		from := time.Now()
		time.Sleep(10 * time.Millisecond)
		emitting += time.Since(from)
		return nil
	})
	if rest := (time.Since(start) - emitting).Seconds(); err != nil || drawn.Seconds > rest {
		t.Errorf("drawing took %v s of %v, %v", drawn.Seconds, rest, err)
	}
}

func TestPartsKeepEveryThreadBusy(t *testing.T) {
	for _, x := range []struct{ n, threads, want int }{
		{128, 1, 1}, {192, 2, 2}, {193, 2, 4}, {23, 2, 1}, {24, 2, 2}, {96, 8, 8}, {95, 8, 1}, {1, 4, 1}, {1000, 3, 12},
	} {
		if got := countParts(x.n, x.threads); got != x.want {
			t.Errorf("%d images are %d parts on %d threads, want %d", x.n, got, x.threads, x.want)
		}
	}
}

// Images and reported progress do not depend on the parts.
func TestPartsDrawTheSame(t *testing.T) {
	defer par.SetThreads(0)
	for _, x := range []struct {
		mechanism string
		change    func(*model.Config)
	}{
		{"linear", nil}, {"softmax", nil}, {"fastmax", func(c *model.Config) { c.Conv = 3 }},
		{"linear", func(c *model.Config) { c.Loss, c.Outputs = model.CrossEntropy, 256 }},
	} {
		m := levelModel(t, x.mechanism, x.change)
		d := ImageOptions{ImageShape: ImageShape{5, 2, 1}, Count: 83, Seed: 3, Prefix: []byte{9, 8}}
		all := int64(d.Count) * 8
		par.SetThreads(1)
		d.Batch = 5
		want := drawImages(t, m, d)
		for _, y := range []struct{ threads, batch int }{{2, 0}, {2, 48}, {3, 50}, {5, 83}, {2, 33}} {
			par.SetThreads(y.threads)
			d.Batch = y.batch
			told, steps := int64(0), 0
			d.Progress = func(done, of int64) {
				if done <= told || done > all || of != all {
					t.Errorf("told of %d levels of %d after %d of %d", done, of, told, all)
				}
				told = done
				steps++
			}
			for i, got := range drawImages(t, m, d) {
				if !bytes.Equal(got, want[i]) {
					t.Errorf("%s, %d threads, batches of %d: image %d is %v, want %v", x.mechanism, y.threads, y.batch, i, got, want[i])
				}
			}
			if told != all || steps <= 8 {
				t.Errorf("told %d times, last of %d levels of %d", steps, told, all)
			}
		}
	}
}

func TestPartsRememberAll(t *testing.T) {
	defer par.SetThreads(0)
	m := levelModel(t, "linear", nil)
	for threads, sizes := range map[int][]int{1: {99}, 2: {49, 50}, 3: {33, 33, 33}} {
		var want int64
		for _, n := range sizes {
			session, err := m.NewSession(n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := session.Step(t.Context(), make([]int32, 4*n), 4); err != nil {
				t.Fatal(err)
			}
			want += session.Bytes()
		}
		par.SetThreads(threads)
		took, err := DrawImages(context.Background(), m, ImageOptions{ImageShape: ImageShape{2, 2, 1}, Count: 99}, func(int, []byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if took.StateBytes != want {
			t.Errorf("%d threads remember %d bytes, their sessions %d", threads, took.StateBytes, want)
		}
	}
}

// What ends one part ends all.
func TestPartsEndTogether(t *testing.T) {
	par.SetThreads(2)
	defer par.SetThreads(0)
	never := func(i int, _ []byte) error {
		t.Errorf("image %d of a batch that failed is there", i)
		return nil
	}
	m := levelModel(t, "linear", nil)
	ctx, stop := context.WithCancel(context.Background())
	steps := 0
	d := ImageOptions{ImageShape: ImageShape{5, 5, 1}, Count: 64, Progress: func(int64, int64) {
		if steps++; steps == 10 {
			stop()
		}
	}}
	if took, err := DrawImages(ctx, m, d, never); !errors.Is(err, context.Canceled) || took.Images != 0 {
		t.Errorf("of a context that ends %d images and %v come", took.Images, err)
	}
	if steps > 11 { // the other part was within a step
		t.Errorf("%d steps, the context ended after 10", steps)
	}

	steps = 0
	d.Progress = func(int64, int64) {
		if steps++; steps == 10 {
			panic("shown")
		}
		if steps > 10 {
			time.Sleep(10 * time.Millisecond) // while the panic goes up
		}
	}
	func() {
		defer func() {
			if r := recover(); r != "shown" {
				t.Errorf("recovered %v", r)
			}
		}()
		_, err := DrawImages(context.Background(), m, d, never)
		t.Errorf("a panic became %v", err)
	}()
	if steps > 20 {
		t.Errorf("%d steps, a panic ended one part at 10", steps)
	}

	// Logits that are NaN follow a level whose embedding is NaN.
	m = levelModel(t, "linear", func(c *model.Config) { c.Loss, c.Outputs = model.CrossEntropy, 256 })
	for _, p := range m.Params().All() {
		if len(p.Shape) == 2 && p.Shape[0] == 257 {
			p.Data[100*p.Shape[1]] = float32(math.NaN())
		}
	}
	d.Progress = nil
	if _, err := DrawImages(context.Background(), m, d, never); !errors.Is(err, attention.ErrNonFinite) {
		t.Errorf("error is %v", err)
	}
}

func TestImagesAreChecked(t *testing.T) {
	m := levelModel(t, "linear", nil)
	good := ImageOptions{ImageShape: ImageShape{5, 5, 1}, Count: 1}
	for _, x := range []struct {
		m      *model.Model
		change func(*ImageOptions)
		want   string
	}{
		{levelModel(t, "linear", func(c *model.Config) { c.Vocab = 256 }), func(*ImageOptions) {}, "model: has 256 tokens"},
		{levelModel(t, "linear", func(c *model.Config) { c.Loss = model.Squared }), func(*ImageOptions) {}, "model: has 6 outputs"},
		{levelModel(t, "linear", func(c *model.Config) { c.Pool = model.PoolLast }), func(*ImageOptions) {}, "model: kind decoder with these settings"},
		{m, func(d *ImageOptions) { d.Height = 6 }, "images: 30 levels, the model learned 25 positions"},
		{levelModel(t, "linear", func(c *model.Config) { c.PositionTable = 24 }), func(*ImageOptions) {}, "images: 25 levels, the model learned 24 positions"},
		{m, func(d *ImageOptions) { d.Width = 0 }, "images: 5×0 pixels"},
		{m, func(d *ImageOptions) { d.Count = 0 }, "images: 0, needs"},
		{m, func(d *ImageOptions) { d.Batch = -1 }, "batch: -1"},
		{m, func(d *ImageOptions) { d.Prefix = make([]byte, 26) }, "given: 26 levels"},
		{m, func(d *ImageOptions) { d.Mode = ModeCache }, "way: cache, but linear has state, or recompute"},
		{m, func(d *ImageOptions) { d.Mode = "magic" }, `way: "magic" is none of recompute, cache, state`},
	} {
		d := good
		x.change(&d)
		if _, err := DrawImages(context.Background(), x.m, d, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
	}
	large := levelModel(t, "linear", func(c *model.Config) { c.PositionTable = 30 })
	drawImages(t, large, ImageOptions{ImageShape: ImageShape{6, 5, 1}, Count: 1}) // beyond the context
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := DrawImages(ctx, m, good, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a context that has ended is %v", err)
	}
}

func TestSquareShapeTellsGreyFromColour(t *testing.T) {
	for n, want := range map[int]ImageShape{784: {28, 28, 1}, 3072: {32, 32, 3}, 196: {14, 14, 1}, 1: {1, 1, 1}, 3: {1, 1, 3}} {
		if got, err := SquareShape(n); err != nil || got != want {
			t.Errorf("%d levels are %v (%v), want %v", n, got, err, want)
		}
	}
	for _, n := range []int{0, 2, 785, 3073} {
		if s, err := SquareShape(n); err == nil {
			t.Errorf("%d levels are %v", n, s)
		}
	}
}

func TestGridPlacesImagesRowByRow(t *testing.T) {
	grid, err := ComposeGrid(ImageShape{2, 1, 3}, [][]byte{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, {13, 14, 15, 16, 17, 18}})
	if err != nil {
		t.Fatal(err)
	}
	if b := grid.Bounds(); b.Dx() != 8 || b.Dy() != 10 {
		t.Fatalf("the grid is %v", b)
	}
	for _, x := range []struct {
		x, y int
		want color.RGBA
	}{{2, 3, color.RGBA{4, 5, 6, 255}}, {5, 2, color.RGBA{7, 8, 9, 255}}, {2, 6, color.RGBA{13, 14, 15, 255}}, {4, 2, color.RGBA{128, 128, 128, 255}}} {
		if got := grid.At(x.x, x.y); got != x.want {
			t.Errorf("pixel %d,%d is %v, want %v", x.x, x.y, got, x.want)
		}
	}
	if _, err := ComposeGrid(ImageShape{2, 2, 1}, [][]byte{{1}}); err == nil {
		t.Error("an image of one level is accepted")
	}
}

func TestImagesOfImpossibleShapesAreRefused(t *testing.T) {
	const large = math.MaxInt/2 + 1 // large·4 is 0 in an int
	m := levelModel(t, "linear", func(c *model.Config) { c.Positions = model.Rotary })
	for _, s := range []ImageShape{{large, 4, 1}, {large, large, 3}, {-2, -2, 1}} {
		if _, err := NewImageGenerator(m, ImageOptions{ImageShape: s, Count: 1}); err == nil || !strings.Contains(err.Error(), "pixels") {
			t.Errorf("%v: error %v", s, err)
		}
	}
	for _, s := range []ImageShape{{1 << 31, 1 << 31, 1}, {1 << 20, 1 << 20, 1}} {
		if _, err := ComposeGrid(s, [][]byte{{0}}); err == nil {
			t.Errorf("a grid of %+v was made of one level", s)
		}
	}
	if _, err := ComposeGrid(ImageShape{-2, -2, 1}, [][]byte{make([]byte, 4)}); err == nil {
		t.Error("a grid of images of -2×-2 pixels is no error")
	}
}

func TestMissingModelIsAnError(t *testing.T) {
	if _, err := NewImageGenerator(nil, ImageOptions{}); !errors.Is(err, errNoModel) {
		t.Errorf("error %v", err)
	}
	if _, err := LoadGenerator("text.state", nil); !errors.Is(err, errNoModel) {
		t.Errorf("error %v", err)
	}
}
